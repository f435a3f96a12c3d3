// Text on a page comes from the server alone: to refresh it, the page is read again and what differs is exchanged.
import { get } from "./fetching.js";
import { showTimes } from "./times.js";

/** Exchange every `[data-part]` element whose content has changed; focus stays on the same link or button. */
export async function refreshParts() {
  const text = await (await get(location.href)).text();
  const fresh = new DOMParser().parseFromString(text, "text/html");
  showTimes(fresh);
  document.title = fresh.title;
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = fresh.getElementById(part.id);
    if (next) keepOpen(part, next);
    if (!next || next.innerHTML === part.innerHTML || isBeingFilled(part)) continue;
    const focus = part.contains(document.activeElement) ? document.activeElement : null;
    part.innerHTML = next.innerHTML;
    if (focus) find(part, focus)?.focus({ preventScroll: true });
  }
}

/** What the reader has unfolded stays so. */
function keepOpen(part, next) {
  const open = new Set([...part.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  for (const summary of next.querySelectorAll("details > summary")) {
    summary.parentElement.open = open.has(summary.textContent);
  }
}

/** Whether the reader is writing in it, or has to mend what was refused: exchanging it would take the words away. */
function isBeingFilled(part) {
  return part.querySelector(".wrong") !== null || [...part.querySelectorAll("input:not([type=hidden])")].some(
    (input) => (input === document.activeElement && input.type !== "checkbox")
      || input.value !== input.defaultValue || input.checked !== input.defaultChecked);
}

function find(part, old) {
  const same = [...part.querySelectorAll(old.tagName)];
  return same.find((element) => element.getAttribute("href") === old.getAttribute("href")
    && element.textContent === old.textContent);
}
