// Draws the figures of a page, keeps them on one horizontal range, and keeps the reader's zoom when new data arrives.
import { get } from "./fetching.js";
import { KEYS, afterKey } from "./keys.js";
import { theme } from "./theme-button.js";
import * as address from "./address.js";

const touch = matchMedia("(pointer: coarse)").matches;
const CONFIG = { displaylogo: false, responsive: true, displayModeBar: touch ? false : "hover",
  modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"]] };
const RAPID = 150;    // a change of a zoom so many ms after another …
const SETTLED = 40;   // … is asked for after so many without a further one; a single one at once
const NEAR = 300;     // px from the screen: drawn ahead of being scrolled to
const LANES = 2;      // groups asked for at once: a browser holds six connections, and one is the stream
const SHARED = "";  // the figures of a run share one horizontal range, kept in the address; other groups have their own
const plots = new Map();  // plot -> what it shares its range with
const due = new Set();    // groups whose figures are not the newest
const shown = new Map();  // group -> what its figures were drawn from
const zooms = new Map();  // the same -> [low, high] chosen by the reader
let view = 0;             // counts resets: Plotly keeps a chosen vertical range as long as it stays the same
let asked = 0;            // counts drawings: an answer that a later one has overtaken is not drawn
let changed = -Infinity;  // when a zoom last was
let later = 0;            // the timer of a drawing that waits for the end of a zoom
let overtaken = new AbortController();
let printing = false;
let moving = 0;           // figures that are moved by us, not by the reader: their own events are not news
if (address.zoom()) zooms.set(SHARED, address.zoom());

let running = null;

/** Plotly's script, run once. It has been loaded ahead, but takes a second to run: the figures are asked for before. */
function plotly() {
  running ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => { running = null; reject(new Error("Plotly's script could not be loaded.")); });
    script.src = document.getElementById("plotly").href;
    document.head.append(script);
  });
  return running;
}

/**
 * Fetch and draw the figures of the page: `first` (a group) in front, those on the screen, then those that were never
 * drawn. The others follow as they are scrolled to, or printed.
 */
export function drawFigures(first = null) {
  if (!zooms.size) view += 1;
  asked += 1;
  overtaken.abort();
  overtaken = new AbortController();
  due.clear();
  for (const group of [first, ...document.querySelectorAll("[data-figures]")]) if (group) due.add(group);
  return work();
}

async function work() {
  const turn = asked;
  let failure = null;
  async function lane() {
    for (let group; turn === asked && (group = [...due].find(inSight) ?? [...due].find(isNew));) {
      due.delete(group);
      try {
        await drawGroup(group, turn);
      } catch (error) {
        if (turn !== asked) return;
        failure ??= error;
      }
    }
  }
  await Promise.all(Array.from({ length: LANES }, lane));
  if (failure) throw failure;
}

const isNew = (group) => group.dataset.state !== "drawn";

function inSight(group) {
  if (printing) return true;
  const { top, bottom } = group.getBoundingClientRect();
  return bottom > -NEAR && top < innerHeight + NEAR;
}

async function drawGroup(group, turn) {
  const ground = theme();
  const query = new URLSearchParams({ x: address.axis(), theme: ground });
  if (shares(group)) {
    const zoom = zooms.get(SHARED);
    if (zoom) for (const [name, value] of [["from", zoom[0]], ["to", zoom[1]]]) query.set(name, value);
    for (const [name, value] of Object.entries(address.choices())) query.set(name, value);
  }
  let text;
  try {
    const joint = group.dataset.figures.includes("?") ? "&" : "?";
    const answer = get(`${group.dataset.figures}${joint}${query}`, overtaken.signal);
    await Promise.all([answer, plotly()]);
    text = await (await answer).text();
  } catch (error) {
    if (turn === asked && !group.querySelector(".panel")) say(group, error.status === 401 ? "Signed out: load the page again." : "Could not load this figure; trying again with the next data.");
    throw error;
  }
  if (turn !== asked) return;
  const looks = `${view} ${zooms.get(scopeOf(group))} ${group.clientWidth} ${text}`;
  if (looks === shown.get(group)) {  // nothing about it has changed
    group.dataset.state = "drawn";
    return;
  }
  shown.delete(group);
  const answer = JSON.parse(text);
  const wanted = new Set(answer.panels.map((panel) => panel.id));
  for (const old of [...group.children]) if (!wanted.has(old.dataset.panel)) remove(old);
  const known = new Map([...group.children].map((child) => [child.dataset.panel, child]));
  for (const panel of answer.panels) if (!known.has(panel.id)) known.set(panel.id, group.appendChild(build(panel.id)));
  for (const panel of answer.panels) {  // all in place: widths are final
    if (turn !== asked) return;
    if (answer.ribbon) panel.figure.data.push({ ...answer.ribbon });
    await drawPanel(group, known.get(panel.id), panel);
  }
  if (answer.note) say(group, answer.note);
  shown.set(group, looks);
  group.dataset.drawn = ground;
  group.dataset.state = "drawn";
}

/** Whether a group shares its horizontal range with the page's other figures. */
const shares = (group) => group.dataset.zoom !== "own";
const scopeOf = (group) => shares(group) ? SHARED : group.id;

function say(group, words) {
  const place = group.querySelector(".placeholder") ?? group.appendChild(document.createElement("p"));
  place.className = "placeholder";
  place.textContent = words;
}

function remove(element) {
  const plot = element.querySelector(".plot");
  if (plot) {
    plots.delete(plot);
    Plotly.purge(plot);
  }
  element.remove();
}

async function drawPanel(group, element, panel) {
  const words = panel.title.split(/(?<=_)/);  // long names of tasks may break after an underscore
  element.querySelector(".title").replaceChildren(...words.flatMap((word) => [word, document.createElement("wbr")]));
  element.querySelector(".caption").textContent = panel.caption;
  const plot = element.querySelector(".plot");
  plot.setAttribute("aria-label", `${panel.title}. ${panel.caption}`);
  const { data, layout } = panel.figure;
  layout.height = parseInt(getComputedStyle(group).getPropertyValue("--height"), 10);
  layout.dragmode = touch ? false : "zoom";
  if (plot.clientWidth < 420) Object.assign(layout.legend, { font: { ...layout.legend.font, size: 10 }, x: -0.18 });
  const scope = scopeOf(group);
  if (zooms.has(scope)) layout.xaxis.range = [...zooms.get(scope)];
  layout.xaxis.uirevision = layout.yaxis.uirevision = `${address.axis()} ${view}`;
  moving += 1;
  await quietly(Plotly.react(plot, data, layout, CONFIG));
  for (const picture of plot.querySelectorAll(".main-svg")) picture.setAttribute("aria-hidden", "true");  // the words say it
  if (!plots.has(plot)) {
    plots.set(plot, scope);
    plot.on("plotly_relayout", (change) => follow(plot, change));
    plot.on("plotly_doubleclick", () => { reset(scope); return false; });
    plot.addEventListener("keydown", (event) => byKey(plot, event));
  }
}

function build(id) {
  const figure = document.createElement("figure");
  figure.className = "panel";
  figure.dataset.panel = id;
  figure.innerHTML = '<figcaption><h2 class="title"></h2><p class="caption"></p></figcaption><div class="plot" role="group" tabindex="0"></div>';
  figure.querySelector(".plot").setAttribute("aria-keyshortcuts", KEYS);
  return figure;
}

/** What the mouse does by dragging and double-clicking. */
function byKey(plot, event) {
  const zoom = afterKey(event, plot.layout.xaxis.range.map(place));
  if (zoom === undefined) return;
  event.preventDefault();
  if (zoom) Plotly.relayout(plot, { "xaxis.range": zoom });
  else if (zooms.has(plots.get(plot))) reset(plots.get(plot));
}

/** Wait for Plotly to do something that is no news. */
async function quietly(done) {
  try {
    await done;
  } finally {
    moving -= 1;
  }
}

function follow(plot, change) {
  if (moving || !Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
  const scope = plots.get(plot);
  if (change["xaxis.autorange"]) return void reset(scope);
  const zoom = plot.layout.xaxis.range.map(place);
  if (!zoom.every(Number.isFinite)) return;
  zooms.set(scope, zoom);
  if (scope === SHARED) address.setZoom(zoom);
  showReset();
  if (scope === SHARED) ask(plot.closest("[data-figures]"));
  requestAnimationFrame(() => {
    if (zooms.get(scope) !== zoom) return;
    for (const [other, its] of plots) if (other !== plot && its === scope) follows(other, zoom);
  });
}

/** Fetch the points of the window itself: at once, or as soon as the reader has stopped. */
function ask(first) {
  const wait = performance.now() - changed < RAPID ? SETTLED : 0;
  changed = performance.now();
  clearTimeout(later);
  const draw = () => drawFigures(first).catch(() => {});
  if (wait) later = setTimeout(draw, wait);
  else draw();
}

/** Shows a window in another figure. Those out of sight get it with their points, when they are scrolled to. */
function follows(plot, zoom) {
  const group = plot.closest("[data-figures]");
  if (shares(group) && !inSight(group)) return;
  moving += 1;
  quietly(Plotly.relayout(plot, { "xaxis.range": [...zoom] })).catch(() => {});
}

/** A place on the horizontal axis as a number: on the axis of time Plotly writes it as a date in UTC. */
function place(value) {
  return typeof value === "string" && value.includes("-") && value.includes(":") ? Date.parse(`${value.replace(" ", "T")}Z`)
    : typeof value === "string" && /^\d{4}-\d\d-\d\d$/.test(value) ? Date.parse(`${value}T00:00Z`) : Number(value);
}

/** Back to the whole range in all figures that share it. */
function reset(scope) {
  zooms.delete(scope);
  if (scope === SHARED) address.setZoom(null);
  view += 1;
  showReset();
  return drawFigures().catch(() => {});
}

function showReset() {
  const button = document.getElementById("reset");
  if (button) button.hidden = !zooms.has(SHARED);
}

/** Buttons that choose the axis, and the one that ends a zoom. */
export function startFigures() {
  const sight = new IntersectionObserver(
    (entries) => { if (entries.some((entry) => entry.isIntersecting && due.has(entry.target))) work().catch(() => {}); },
    { rootMargin: `${NEAR}px` });
  for (const group of document.querySelectorAll("[data-figures]")) sight.observe(group);
  for (const event of ["beforeprint", "afterprint"]) {
    addEventListener(event, () => { printing = event === "beforeprint"; if (due.size) work().catch(() => {}); });
  }
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.addEventListener("click", () => {
      if (address.axis() === button.dataset.axis) return;
      address.setAxis(button.dataset.axis);
      for (const other of document.querySelectorAll("[data-axis]")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      reset(SHARED);
    });
  }
  for (const box of document.querySelectorAll("[data-choice]")) {
    box.checked = address.chosen(box.dataset.choice);
    box.addEventListener("change", () => {
      address.choose(box.dataset.choice, box.checked);
      view += 1;
      drawFigures().catch(() => {});
    });
  }
  document.getElementById("reset")?.addEventListener("click", () => reset(SHARED));
  showReset();
}
