// Times in the reader's own zone, and ages that keep counting.
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const thin = "\u202f";

function age(seconds) {
  if (seconds < 0.5) return "now";
  for (const [size, unit, limit] of [[1, "s", 90], [60, "min", 90], [3600, "h", 48], [86400, "d", Infinity]]) {
    if (seconds / size < limit) return `${Math.round(seconds / size)}${thin}${unit} ago`;
  }
}

/** Rewrite every `<time>` under `root`. */
export function showTimes(root = document) {
  for (const element of root.querySelectorAll("time[data-age], time[data-moment]")) {
    const time = new Date(element.dateTime);
    if ("age" in element.dataset) element.textContent = age((Date.now() - time) / 1000);
    else element.textContent = full.format(time);
    element.title = `${exact.format(time)} · ${time.toISOString()}`;
  }
}

export function startTimes() {
  const zone = document.getElementById("zone");
  zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "your zone";
  showTimes();
  setInterval(() => { if (!document.hidden) showTimes(); }, 5000);
}
