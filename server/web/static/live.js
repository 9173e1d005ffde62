// Keeps a page up to date: asks the server for the same page again and swaps in what changed.
// A stream of events says when to ask; without one, or while it is down, a timer does. What it tells
// of new trials is shown at once, and the page itself asked for only now and then.
import { announce, formatSeconds } from "./util.js";
import { swap } from "./swap.js";

const SOONEST = 1000; // ms between two refreshes
const GROWING = 5000; // ms between two refreshes while nothing but trials is new
const PATIENCE = 30000; // ms that an answer may take
const SLOWEST = 15000; // ms between two tries while the server cannot be reached

export function follow() {
  const main = document.querySelector("main[data-live]");
  if (main) new Follower(main).start();
}

class Follower {
  constructor(main) {
    this.main = main;
    this.timer = 0;
    this.busy = false;
    this.asked = Infinity; // ms to the next refresh that was asked for while one was under way
    this.failures = 0;
    this.last = 0;
    this.stream = null;
    this.due = 0; // when the next refresh was asked for, 0: it was not
  }

  start() {
    this.listen();
    document.addEventListener("visibilitychange", () => !document.hidden && this.soon(0));
    addEventListener("pagehide", () => this.stream?.close());
    addEventListener("pageshow", (event) => event.persisted && location.reload());
    this.schedule();
  }

  listen() {
    const url = this.main.dataset.events;
    if (!url) return;
    this.stream = new EventSource(url);
    for (const kind of this.main.dataset.kinds.split(" ")) {
      this.stream.addEventListener(kind, (event) => (kind === "progress" ? this.grow(event) : this.soon()));
    }
  }

  /** Show what an event tells of new trials. */
  grow(event) {
    const { trials_done: trials, best_seconds: best } = JSON.parse(event.data).data;
    const figure = (name) => document.querySelector(`[data-figure="${name}"]`);
    if (trials !== undefined) {
      figure("trials").textContent = trials.toLocaleString("en-US");
      document.querySelector("#figures progress").value = trials;
    }
    if (best) figure("best").textContent = formatSeconds(best);
    document.dispatchEvent(new Event("grown"));
    this.soon(GROWING);
  }

  /** Refresh as soon as that is allowed. */
  soon(least = SOONEST) {
    if (this.busy || document.hidden) {
      this.asked = Math.min(this.asked, least);
      return;
    }
    const at = Math.max(Date.now(), this.last + least);
    if (this.due && this.due <= at) return; // it comes sooner
    clearTimeout(this.timer);
    this.due = at;
    this.timer = setTimeout(() => this.refresh(), at - Date.now());
  }

  schedule() {
    clearTimeout(this.timer);
    this.due = 0;
    if (!this.main.hasAttribute("data-live")) {
      this.stream?.close();
      return;
    }
    const interval = Number(this.main.dataset.live);
    const wait = this.failures ? Math.min(SLOWEST, SOONEST * 2 ** this.failures) : interval;
    this.timer = setTimeout(() => (document.hidden ? this.schedule() : this.refresh()), wait);
  }

  async refresh() {
    this.busy = true;
    this.asked = Infinity;
    this.due = 0;
    try {
      const response = await fetch(location.href, {
        headers: { Accept: "text/html" },
        signal: AbortSignal.timeout(PATIENCE),
      });
      if (response.status === 401 || response.redirected) {
        location.reload(); // the login has run out
        return;
      }
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      this.take(swap(await response.text()));
      this.failures = 0;
      this.tell("");
    } catch (error) {
      this.failures += 1;
      this.tell(`Not up to date: ${error.message}. Trying again.`);
    } finally {
      this.busy = false;
      this.last = Date.now();
    }
    this.asked < Infinity && !this.failures ? this.soon(this.asked) : this.schedule();
  }

  take(page) {
    const fresh = page.querySelector("main");
    if (!fresh.hasAttribute("data-live")) this.main.removeAttribute("data-live");
    document.title = page.title;
    announce(fresh.dataset.news ?? "");
    document.dispatchEvent(new Event("refreshed"));
  }

  tell(text) {
    const status = document.getElementById("connection");
    status.textContent = text;
    status.hidden = !text;
  }
}
