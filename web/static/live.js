// What changed, as it happens: server-sent events, polling where they fail, nothing at all while the tab is hidden.
const KINDS = ["points", "verdict", "alert", "run", "delivery"];
const PAUSE = 1000;   // at least so many ms between two refreshes, and three times as long as the last one took
const POLL = 10000;   // without a stream, ask so often
const RETRY = 30000;  // and try the stream again so often

/** Calls `refresh()` when something about `run` (a run's id, or "all") has changed. */
export function listen(run, refresh) {
  const address = `${document.documentElement.dataset.base}/api/v1/events`;
  let source = null, poll = 0, retry = 0, due = false, busy = false, last = 0, timer = 0;

  const say = (state, words) => {
    const place = document.getElementById("live");
    place.hidden = false;
    if (place.dataset.state === state) return;
    place.dataset.state = state;
    place.textContent = words;
  };

  function changed() {
    due = true;
    if (busy || timer || document.hidden) return;
    timer = setTimeout(run_refresh, Math.max(0, last + PAUSE - Date.now()));
  }

  async function run_refresh() {
    timer = 0;
    busy = true;
    due = false;
    const began = Date.now();
    try {
      await refresh();
      if (!source || source.readyState !== EventSource.OPEN) say("polling", "Polling");
    } catch (error) {
      say("lost", error.status === 401 ? "Signed out" : "No connection");
    }
    busy = false;
    last = Math.max(Date.now(), began + 3 * (Date.now() - began) - PAUSE);
    if (due) changed();
  }

  function concerns(event) {
    if (run === "all") return true;
    try {
      const body = JSON.parse(event.data);
      return !body.run || body.run === run;
    } catch { return true; }
  }

  function stop() {
    source?.close();
    source = null;
    clearInterval(poll);
    clearTimeout(retry);
    clearTimeout(timer);
    poll = retry = timer = 0;
  }

  function start() {
    stop();
    source = new EventSource(address);
    source.addEventListener("open", () => {
      say("live", "Live");
      clearInterval(poll);
      poll = 0;
      changed();  // whatever was missed while there was no stream
    });
    source.addEventListener("error", () => {
      if (!poll) poll = setInterval(changed, POLL);
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(start, RETRY);
      changed();
    });
    for (const kind of KINDS) source.addEventListener(kind, (event) => { if (concerns(event)) changed(); });
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else start();
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  if (!document.hidden) start();
}
