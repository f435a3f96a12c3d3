// What changed, as it happens: one stream for all tabs (hub.js), polling where it fails, nothing while the tab is hidden.
import { Hub } from "./hub.js";

const PAUSE = 1000;   // at least so many ms between two refreshes, and as long again as the last one took
const POLL = 10000;   // without a stream, or after a failure, ask so often
const BEAT = 20000;   // tell the hub that we are still there
const ANSWER = 10000; // a worker that has not answered after so long is dead

const events = () => `${document.documentElement.dataset.base}/api/v1/events`;

function sharedWorker() {
  return new SharedWorker(new URL("hub-worker.js", import.meta.url), { type: "module", name: events() });
}

/** A port to a hub inside this page. */
function ownHub() {
  const { port1, port2 } = new MessageChannel();
  new Hub(events()).join(port2);
  return port1;
}

/** The reader has signed in or out: the stream begins anew, with what is valid now. */
export function renew() {
  if (typeof SharedWorker !== "undefined") sharedWorker().port.postMessage({ renew: true });
}

/** Calls `refresh()` when something about `run` (a run's id, or "all") has changed. */
export function listen(run, refresh) {
  let newest = Number(document.documentElement.dataset.news);  // of the events this page knows of
  let port = null, shared = false, open = false, failed = false;
  let poll = 0, beat = 0, answer = 0, timer = 0, due = false, busy = false, next = 0;

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
    timer = setTimeout(runRefresh, Math.max(0, next - Date.now()));
  }

  async function runRefresh() {
    timer = 0;
    busy = true;
    due = false;
    const began = Date.now();
    try {
      await refresh();
      failed = false;
      say(open ? "live" : "polling", open ? "Live" : "Polling");
    } catch (error) {
      failed = true;
      say("lost", error.status === 401 ? "Signed out" : "No connection");
    }
    busy = false;
    next = Date.now() + Math.max(PAUSE - (Date.now() - began), Date.now() - began);
    if (due) changed();
    watch();
  }

  /** Ask from time to time whatever no stream tells. */
  function watch() {
    const wanted = !document.hidden && (!open || failed);
    if (wanted && !poll) poll = setInterval(changed, POLL);
    if (!wanted) {
      clearInterval(poll);
      poll = 0;
    }
  }

  function use(found) {
    port = found;
    port.onmessage = ({ data }) => hear(data);
  }

  function connect() {
    shared = typeof SharedWorker !== "undefined";
    if (!shared) return use(ownHub());
    try {
      const worker = sharedWorker();
      worker.onerror = leaveWorker;
      use(worker.port);
    } catch {
      leaveWorker();
    }
  }

  function leaveWorker() {
    if (shared === false) return;
    shared = false;
    port?.postMessage({ away: true });
    use(ownHub());
    here();
  }

  function hear(said) {
    clearTimeout(answer);
    if (said.unable) return leaveWorker();
    if (said.state === "open" || said.state === "lost") {
      open = said.state === "open";
      if (open && !failed) say("live", "Live");
      else changed();
      watch();
    }
    if (said.news) {
      newest = said.news.number;
      if (run === "all" || !said.news.run || said.news.run === run) changed();
    }
    if (said.missed) {
      newest = said.missed;
      changed();
    }
  }

  function here() {
    if (document.hidden) return;
    clearTimeout(answer);
    if (shared) answer = setTimeout(leaveWorker, ANSWER);
    port.postMessage({ here: newest });
  }

  function start() {
    here();
    clearInterval(beat);
    beat = setInterval(here, BEAT);
    if (due) changed();
  }

  function stop() {
    port.postMessage({ away: true });
    open = false;
    for (const clock of [beat, poll, answer, timer]) clearTimeout(clock);
    beat = poll = answer = timer = 0;
  }

  document.addEventListener("visibilitychange", () => document.hidden ? stop() : start());
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  connect();
  if (!document.hidden) start();
}
