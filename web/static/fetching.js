/** The answer to a GET, or an error that carries its status. */
export async function get(address, signal) {
  const answer = await fetch(address, { cache: "no-cache", credentials: "same-origin", signal });
  if (answer.ok) return answer;
  const error = new Error(`${address}: ${answer.status}`);
  error.status = answer.status;
  throw error;
}
