// One stream of server-sent events for many tabs. It lives in a SharedWorker, or in the one page where there is none.
const KINDS = ["points", "settings", "verdict", "alert", "run", "delivery"];
const WATCH = 5000;
const SILENCE = 40000;  // ms: the server sends something every 15 s
const GONE = 75000;     // a tab that has said nothing for so long has crashed or sleeps
const RETRY = 30000;    // after a refusal; EventSource itself comes back after a lost connection
const KEPT = 1000;      // news, for tabs that were hidden
const STRIDE = 1024;    // numbers of one server process are alike but for a multiple of it: service/broker.py

/**
 * A tab says {here: number of the newest event it knows} when it is shown and every few seconds, {away: true} when it is
 * hidden, {renew: true} when the reader has signed in or out. It hears {state: "open" | "lost"} in answer and whenever
 * that changes, {news: {number, kind, run}} for each event, and {missed: number} where it must read everything again.
 */
export class Hub {
  #address;
  #tabs = new Map();  // port -> when it was last heard; only tabs that are shown
  #source = null;
  #heard = 0;         // when the server was
  #retry = 0;
  #watch = 0;
  #news = [];
  #from = null;       // the news hold everything after this number
  #last = null;       // up to this one

  constructor(address) {
    this.#address = address;
  }

  join(port) {
    port.onmessage = (message) => this.#hear(port, message.data);
  }

  #hear(port, said) {
    if (said.away) this.#tabs.delete(port);
    if (said.renew) this.#close();
    if ("here" in said) {
      const known = this.#tabs.has(port);
      this.#tabs.set(port, Date.now());
      if (!known) this.#welcome(port, said.here);
      else port.postMessage({ state: this.#state() });
    }
    this.#settle();
  }

  #welcome(port, number) {
    clearTimeout(this.#retry);  // whoever has just loaded a page may have signed in
    this.#retry = 0;
    this.#from ??= number;
    this.#last ??= number;
    port.postMessage({ state: this.#state() });
    if (number < this.#from || number % STRIDE !== this.#last % STRIDE) port.postMessage({ missed: this.#last });
    else for (const news of this.#news) if (news.number > number) port.postMessage({ news });
  }

  #state() {
    return this.#source?.readyState === EventSource.CLOSED || this.#retry ? "lost"
      : this.#source?.readyState === EventSource.OPEN ? "open" : "opening";
  }

  #tell(message) {
    for (const port of this.#tabs.keys()) port.postMessage(message);
  }

  /** A stream while somebody looks, none otherwise. */
  #settle() {
    if (!this.#tabs.size) this.#close();
    else if (!this.#source && !this.#retry) this.#open();
  }

  #open() {
    const source = this.#source = new EventSource(`${this.#address}?since=${this.#last}`);
    this.#heard = Date.now();
    if (!this.#watch) this.#watch = setInterval(() => this.#look(), WATCH);
    source.onopen = () => {
      this.#heard = Date.now();
      this.#tell({ state: "open" });
    };
    source.onerror = () => {
      if (this.#source !== source) return;
      if (source.readyState === EventSource.CLOSED) {
        this.#source = null;
        this.#retry = setTimeout(() => { this.#retry = 0; this.#settle(); }, RETRY);
      }
      this.#tell({ state: "lost" });
    };
    source.addEventListener("beat", () => { this.#heard = Date.now(); });
    source.addEventListener("missed", (event) => {
      this.#heard = Date.now();
      this.#news = [];
      this.#from = this.#last = Number(event.lastEventId);
      this.#tell({ missed: this.#last });
    });
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.#pass(kind, event));
  }

  #pass(kind, event) {
    this.#heard = Date.now();
    const news = { number: Number(event.lastEventId), kind, run: JSON.parse(event.data).run ?? null };
    this.#last = news.number;
    this.#news.push(news);
    if (this.#news.length > KEPT) this.#from = this.#news.shift().number;
    this.#tell({ news });
  }

  #close() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#retry);
    clearInterval(this.#watch);
    this.#retry = this.#watch = 0;
  }

  /** Tabs that have gone without a word, and a connection that has died without one. */
  #look() {
    const now = Date.now();
    for (const [port, heard] of this.#tabs) if (now - heard > GONE) this.#tabs.delete(port);
    if (this.#source && now - this.#heard > SILENCE) {
      this.#close();
      this.#tell({ state: "lost" });
    }
    this.#settle();
  }
}
