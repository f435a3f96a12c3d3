// Parts of a page that cost more than the page itself come after it, each from an address of its own.
import { get } from "./fetching.js";
import { showTimes } from "./times.js";

const shown = new WeakMap();  // element -> the text that it shows

/** Fetch every `[data-fragment]` element's content, and exchange what has changed. */
export async function drawFragments() {
  for (const place of document.querySelectorAll("[data-fragment]")) {
    const text = await (await get(place.dataset.fragment)).text();
    if (shown.get(place) === text) continue;
    const fresh = new DOMParser().parseFromString(text, "text/html");
    showTimes(fresh);
    place.replaceChildren(...fresh.body.childNodes);
    shown.set(place, text);
  }
}
