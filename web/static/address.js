// What a reader has chosen lives in the address, so that a link shows the same view.
const read = () => new URLSearchParams(location.search);

function write(query) {
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
}

/** "tokens" or "steps". */
export const axis = () => (read().get("x") === "steps" ? "steps" : "tokens");

export function setAxis(name) {
  const query = read();
  if (name === "tokens") query.delete("x");
  else query.set("x", name);
  write(query);
}

/** [low, high] on the horizontal axis, or null. */
export function zoom() {
  const [low, high] = ["from", "to"].map((name) => parseFloat(read().get(name)));
  return Number.isFinite(low) && Number.isFinite(high) && low < high ? [low, high] : null;
}

export function setZoom(range) {
  const query = read();
  if (range) {
    query.set("from", range[0].toPrecision(7));
    query.set("to", range[1].toPrecision(7));
  } else {
    query.delete("from");
    query.delete("to");
  }
  write(query);
}
