// Moving along the horizontal axis of a chart by keyboard.
const PART = 0.2;      // of the window's width, for each stroke of an arrow
const FINEST = 1e-12;  // of the place itself: a narrower window has no two numbers in it

/** What a screen reader says of it. */
export const KEYS = "ArrowLeft ArrowRight + - 0";

/** The window after a key: [low, high], null for everything, undefined where the key means nothing here. */
export function afterKey(event, [low, high]) {
  if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const width = high - low, middle = (low + high) / 2;
  switch (event.key) {
    case "ArrowLeft": return [low - PART * width, high - PART * width];
    case "ArrowRight": return [low + PART * width, high + PART * width];
    case "+": case "=": return width > FINEST * Math.abs(middle) ? [middle - width / 4, middle + width / 4] : [low, high];
    case "-": case "_": return [middle - width, middle + width];
    case "0": return null;
    default: return undefined;
  }
}
