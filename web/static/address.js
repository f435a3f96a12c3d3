// What a reader has chosen lives in the address, so that a link shows the same view.
const read = () => new URLSearchParams(location.search);

function write(query) {
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
}

const AXES = ["tokens", "steps", "time"];
const MEANT = { log: "false", smooth: "true", superseded: "false" };  // what is meant where the address says nothing

/** "tokens", "steps" or "time". */
export const axis = () => (AXES.includes(read().get("x")) ? read().get("x") : "tokens");

export const setAxis = (name) => set("x", name, "tokens");

/** Whether one of `log`, `smooth`, `superseded` is chosen. */
export const chosen = (name) => (read().get(name) ?? MEANT[name]) === "true";

export const choose = (name, whether) => set(name, String(whether), MEANT[name]);

/** What the figures are asked for with, beside the window: only what differs from what is meant. */
export const choices = () => Object.fromEntries(
  Object.keys(MEANT).map((name) => [name, String(chosen(name))]).filter(([name, value]) => value !== MEANT[name]));

function set(name, value, meant) {
  const query = read();
  if (value === meant) query.delete(name);
  else query.set(name, value);
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
    query.set("from", short(range[0], range));
    query.set("to", short(range[1], range));
  } else {
    query.delete("from");
    query.delete("to");
  }
  write(query);
}

/** A number with as many digits as the window needs: a hundred-thousandth of it. */
function short(value, [low, high]) {
  const digits = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low))) + 5;
  return Number(value.toPrecision(Math.min(Math.max(digits, 4), 17))).toString();
}
