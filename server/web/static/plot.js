// All trials of a job and its best so far, drawn by Plotly, and the best so far of another job.
import { announce, formatSeconds } from "./util.js";

const FAR = 3; // a baseline so many times slower than all trials is left out of the range
const LONGER = 4; // a job so many times longer than this one is shown up to where this one ends
const LEAST = 1000; // ms between two times that new trials are asked for
const MOST = 5000; // points from which on a sample of them is asked for anew
const AGAIN = 5000; // ms after which data that did not arrive is asked for again
const MANY = 600; // trials from which on their dots are smaller
const LANE = 0.045; // the part of the height, below, of each status whose trials have no time
const NAMES = { trial: "trials", elapsed: "seconds since the first trial" };

export function start() {
  new Plot(document.getElementById("plot")).start();
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Plot {
  constructor(box) {
    this.box = box;
    this.axis = "trial";
    this.chosen = null; // the id of the record that the keys have come to
    this.data = null;
    this.other = null; // what the other job has
    this.zooms = false; // whether dragging zooms; else it scrolls the page
    this.range = null; // what was zoomed into: x, and y where that was
  }

  async start() {
    document.getElementById("axes").hidden = false;
    for (const button of document.querySelectorAll("button[data-axis]")) {
      button.addEventListener("click", () => this.turn(button.dataset.axis));
    }
    const zoom = document.getElementById("zoom");
    zoom.addEventListener("click", () => {
      this.zooms = !this.zooms;
      if (!this.zooms) this.range = null;
      zoom.setAttribute("aria-pressed", String(this.zooms));
      return this.draw();
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    document.addEventListener("refreshed", () => this.load());
    document.addEventListener("grown", () => this.soon());
    await this.load();
  }

  soon() {
    if (this.waiting || document.hidden) return;
    const wait = Math.max(0, (this.loaded ?? 0) + LEAST - Date.now());
    this.waiting = setTimeout(() => this.load(), wait);
  }

  async load() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    this.asked = true; // what is on its way may be older than what is asked for now
    if (this.loading) return;
    this.loading = true;
    clearTimeout(this.timer);
    try {
      while (this.asked) {
        this.asked = false;
        try {
          await this.ask();
        } catch {
          this.timer = setTimeout(() => this.load(), AGAIN); // the page says that it is not up to date
          return;
        }
        await this.draw();
      }
    } finally {
      this.loading = false; // also where it could not be drawn: newer data may
    }
  }

  async get(url) {
    const response = await fetch(url, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    return response.json();
  }

  // All that is shown, or what is new since then.
  async ask() {
    if (this.box.dataset.with) this.other = await this.get(this.box.dataset.with);
    const ids = this.data?.points.id ?? [];
    const grows = ids.length > 0 && ids.length < MOST;
    const url = this.box.dataset.from + (grows ? `?after=${ids.at(-1)}` : "");
    const found = await this.get(url);
    this.loaded = Date.now();
    if (!grows) this.data = found;
    else if (found.more) (this.data = null), await this.ask();
    else this.add(found);
  }

  add({ points, baselines }) {
    const { data } = this;
    const last = data.points.trial.at(-1);
    points.trial = points.trial.map((trial) => last + trial);
    for (const name of Object.keys(data.points)) data.points[name].push(...points[name]);
    data.trials = data.points.trial.at(-1);
    data.baselines = baselines;
  }

  turn(axis) {
    this.axis = axis;
    this.range = null;
    for (const button of document.querySelectorAll("button[data-axis]")) {
      button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
    }
    return this.draw();
  }

  async draw() {
    if (!this.data) return;
    this.rows = this.read(this.data);
    this.rivals = this.other ? this.read(this.other) : [];
    const empty = !this.rows.length;
    this.box.classList.toggle("empty", empty);
    document.getElementById("axes").hidden = empty;
    if (!empty) await this.paint(); // there are no axes to be made of nothing
    this.box.dataset.drawn = String(this.data.trials);
    this.box.dataset.axis = this.axis;
  }

  async paint() {
    const config = { displayModeBar: false, responsive: true, doubleClick: false };
    await Plotly.react(this.box, this.traces(), this.layout(), config);
    if (!this.drawn) this.listen();
    this.drawn = true;
    this.name();
  }

  listen() {
    this.box.on("plotly_click", (event) => this.open(event.points[0].customdata?.[0]));
    this.box.on("plotly_doubleclick", () => this.zoomTo(null));
    this.box.on("plotly_relayout", (change) => {
      const of = (axis) => (`${axis}.range[0]` in change ? [change[`${axis}.range[0]`], change[`${axis}.range[1]`]] : null);
      const [x, y] = [of("xaxis"), of("yaxis")];
      if (x || y) this.zoomTo({ x: x ?? this.range?.x, y: y ?? this.range?.y }, false);
    });
  }

  zoomTo(range, draws = true) {
    this.range = range;
    this.name();
    if (draws) this.draw();
  }

  // Has what is exported as an image begin and end where the plot does.
  name() {
    const link = document.querySelector("a[data-export]");
    if (!link) return;
    const url = new URL(link.href);
    const span = this.axis === "trial" ? this.range?.x : null;
    for (const [name, value] of [["first", span && Math.max(1, Math.ceil(span[0]))], ["last", span && Math.max(1, Math.floor(span[1]))]]) {
      value ? url.searchParams.set(name, value) : url.searchParams.delete(name);
    }
    link.href = url;
  }

  // Half or twice as much of the horizontal axis, around the trial that the keys have come to.
  scale(factor) {
    const [begin, end] = this.range?.x ?? [0, this.rows.at(-1).x * 1.01];
    const middle = this.rows.find((row) => row.id === this.chosen)?.x ?? (begin + end) / 2;
    const half = ((end - begin) * factor) / 2;
    const whole = half * 2 >= this.rows.at(-1).x * 1.01;
    this.zoomTo(whole ? null : { x: [Math.max(0, middle - half), Math.max(0, middle - half) + 2 * half] });
  }

  // The trials in order, each with its place on the axis that is shown.
  read({ points, statuses }) {
    return points.id.map((id, i) => ({
      id, trial: points.trial[i], x: points[this.axis][i], seconds: points.seconds[i], status: statuses[points.status[i]],
    }));
  }

  traces() {
    const timed = this.rows.filter((row) => row.seconds !== null);
    const failed = Map.groupBy(this.rows.filter((row) => row.seconds === null), (row) => row.status);
    const end = this.rows.at(-1)?.x ?? 1;
    const baselines = this.data.baselines.map(({ name, seconds }) => ({
      name, mode: "lines", x: [this.rows[0]?.x ?? 0, end], y: [seconds, seconds], hoverinfo: "skip",
      line: { color: colour("--warn"), width: 1.5, dash: "dash" },
    }));
    return [
      this.dots("ok", timed),
      ...[...failed.keys()].sort().map((status) => ({ ...this.dots(status, failed.get(status)), yaxis: "y2" })),
      ...baselines,
      ...(this.rivals.length ? [this.best("best so far of the other", this.rivals.filter((row) => row.seconds !== null), this.rivals.at(-1).x, "--two")] : []),
      this.best("best so far", timed, end, "--good"),
    ];
  }

  dots(status, rows) {
    return {
      name: status, mode: "markers", hoverinfo: "text",
      x: rows.map((row) => row.x),
      y: rows.map((row) => row.seconds ?? status.replaceAll("_", " ")),
      customdata: rows.map((row) => [row.id]),
      text: rows.map((row) => words(row).replace("\n", "<br>")),
      marker: { color: colour(`--st-${status}`), size: this.rows.length > MANY ? 3.5 : 6, opacity: 0.75,
        symbol: status === "ok" ? "circle" : "square" },
    };
  }

  best(name, timed, end, hue) {
    let least = Infinity;
    const better = timed.filter((row) => row.seconds < least && ((least = row.seconds), true));
    const last = better.length ? [{ x: end, seconds: least }] : [];
    const line = [...better, ...last];
    return {
      name, mode: "lines", hoverinfo: "skip",
      x: line.map((row) => row.x), y: line.map((row) => row.seconds),
      line: { color: colour(hue), width: 2.5, shape: "hv" },
    };
  }

  // Seconds from the fastest to the slowest that is worth showing; null: nothing has a time.
  spread() {
    const times = [...this.rows, ...this.rivals].filter((row) => row.seconds !== null).map((row) => row.seconds);
    const slowest = Math.max(...times);
    const near = (baseline) => !times.length || baseline.seconds <= FAR * slowest;
    for (const [i, baseline] of this.data.baselines.entries()) {
      const note = document.querySelector(`[data-baseline="${i}"] .above`);
      if (note) note.hidden = near(baseline);
    }
    const marks = [...times, ...this.data.baselines.filter(near).map((baseline) => baseline.seconds)];
    if (!marks.length) return null; // lanes of failed trials are all there is
    const [low, high] = [Math.min(...marks), Math.max(...marks)];
    const room = (high / low) ** 0.06 * 1.01;
    return [low / room, high * room];
  }

  layout() {
    const span = this.spread();
    const [low, high] = span ?? [1, 1];
    const lanes = new Set(this.rows.filter((row) => row.seconds === null).map((row) => row.status));
    const height = lanes.size * LANE;
    const own = this.rows.at(-1).x || 1;
    const rival = this.rivals.at(-1)?.x ?? 0;
    const last = rival > LONGER * own ? own : Math.max(own, rival); // this is the page of one of them
    const shown = this.range?.y?.map((power) => 10 ** power) ?? [low, high];
    const marks = span ? ticks(...shown) : [];
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--line"), zeroline: false, fixedrange: !this.zooms };
    const narrow = this.box.clientWidth < 600;
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--muted") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: narrow || !lanes.size ? 62 : 118, r: 12, t: 8, b: 44 },
      showlegend: false, dragmode: this.zooms ? "zoom" : false, hovermode: "closest",
      hoverlabel: { bgcolor: colour("--text"), bordercolor: colour("--text"), font: { color: colour("--surface") } },
      xaxis: { ...axis, title: { text: NAMES[this.axis], standoff: 8 }, range: this.range?.x ?? [0, last * 1.01], anchor: lanes.size ? "y2" : "y",
        tickformat: this.axis === "trial" ? ",d" : "", nticks: narrow ? 5 : 12 },
      yaxis: { ...axis, type: "log", domain: [lanes.size ? height + 0.03 : 0, 1], visible: span !== null,
        range: this.range?.y ?? [Math.log10(low), Math.log10(high)],
        tickvals: marks, ticktext: marks.map(formatSeconds) },
      yaxis2: { ...axis, fixedrange: true, type: "category", domain: [0, Math.max(height, 0.01)], dtick: 1, visible: lanes.size > 0, showgrid: false,
        range: [-0.6, lanes.size - 0.4], showticklabels: !narrow, tickfont: { size: 11 } },
    };
  }

  key(event) {
    if (!this.drawn) return;
    const last = this.rows.length - 1;
    const now = this.rows.findIndex((row) => row.id === this.chosen);
    const to = { ArrowRight: now + 1, ArrowLeft: now < 0 ? last : now - 1, Home: 0, End: last }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (factor) this.scale(factor);
    else if (event.key === "0") this.zoomTo(null);
    else if (event.key === "Enter") this.open(this.chosen);
    else if (event.key === "Escape") Plotly.Fx.unhover(this.box);
    else if (to !== undefined && last >= 0) {
      event.preventDefault();
      const row = this.rows[Math.max(0, Math.min(last, to))];
      this.chosen = row.id;
      this.show(row);
      announce(words(row));
    }
  }

  // The label that pointing at a trial shows.
  show(row) {
    const curveNumber = this.box.data.findIndex((trace) => trace.name === row.status);
    const pointNumber = this.box.data[curveNumber].customdata.findIndex(([id]) => id === row.id);
    const subplot = row.seconds === null ? "xy2" : "xy";
    Plotly.Fx.hover(this.box, [{ curveNumber, pointNumber }], [subplot]);
  }

  open(id) {
    if (id) location.assign(`${this.box.dataset.records}${id}`);
  }
}

function words(row) {
  const time = row.seconds === null ? row.status.replaceAll("_", " ") : formatSeconds(row.seconds);
  return `trial ${row.trial}: ${time}\nrecord ${row.id}, press to open`;
}

/** Round values between two times: of a linear scale where they are near, else 1, 2, 5, 10, … */
function ticks(low, high) {
  if (high / low < 6) {
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
  }
  const decades = Math.log10(high / low);
  const out = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (const n of decades > 3 ? [1] : [1, 2, 5]) {
      const value = Number(`${n}e${power}`);
      if (value >= low && value <= high) out.push(value);
    }
  }
  return out;
}
