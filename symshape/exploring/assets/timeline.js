// The history of a cache: what was traced, when, for which sizes and why; which sizes came how often.

/** In this order; kinds that are not known here come after them. */
const LANES = ["trace", "new sizes", "bucket made", "bucket chosen", "captured", "kernels timed", "dropped", "padding refused", "ran op by op", "fallback", "evicted"];

const SHOWN = 100; // rows of the table: the page is as long as they are

class Timeline {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "timeline" });
    this.kind = h("select", { "aria-label": "what is listed", onchange: () => this.table() });
    this.body = h("tbody");
    this.left = h("p", { class: "quiet", role: "status" });
  }

  show(space) {
    this.space = space;
    const moments = this.app.report.moments ?? [];
    const kinds = new Set(moments.map((moment) => moment.kind));
    this.lanes = [...LANES.filter((lane) => kinds.delete(lane)), ...kinds];
    fill(this.kind, h("option", { value: "" }, "everything"), this.lanes.map((lane) => h("option", { value: lane }, lane)));
    fill(this.root,
      moments.length ? [this.picture(moments), h("div", { class: "tools" }, h("label", null, "list ", this.kind)), this.frame("history", ["call, at", "what", "sizes, and why"], this.body, [0]), this.left] : h("p", { class: "quiet" }, "No history was recorded."),
      this.frequent());
    this.table();
  }

  /** A table with these columns; those that hold numbers are set to the right. */
  frame(name, columns, body, numbers) {
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, h("table", null, h("thead", null, h("tr", null, columns.map((word, i) => h("th", { scope: "col", class: numbers.includes(i) ? "number" : null }, word)))), body));
  }

  /** One lane for each kind, calls from left to right. */
  picture(moments) {
    const { lanes } = this;
    const last = Math.max(1, ...moments.map((moment) => moment.call), Number(this.app.fact("calls") ?? 0));
    const width = Math.max(360, Math.min(780, this.root.clientWidth || 780)); // drawn as wide as it is shown: text keeps its size
    const x = (call) => 114 + ((Math.max(1, call) - 1) / Math.max(1, last - 1)) * (width - 148);
    const height = 30 * lanes.length + 34;
    return svg("svg", { class: "lanes", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": lanes.map((lane) => `${counted(moments.filter((m) => m.kind === lane).length, "event")}: ${lane}`).join("; ") },
      lanes.map((lane, i) => [svg("text", { x: 100, y: 30 * i + 24, "text-anchor": "end" }, lane), svg("line", { x1: 110, x2: width - 30, y1: 30 * i + 20, y2: 30 * i + 20 })]),
      moments.map((m) => {
        const y = 30 * lanes.indexOf(m.kind) + 20;
        const tip = svg("title", null, `call ${m.call}: ${m.kind} ${m.sizes} ${m.text}`);
        const colour = m.entry === undefined ? "none" : colourOf(this.position(m.entry));
        return m.kind === "trace" ? svg("rect", { x: x(m.call) - 4, y: y - 9, width: 8, height: 18, class: `mark-${colour}` }, tip) : svg("circle", { cx: x(m.call), cy: y, r: 4, class: `mark-${colour}` }, tip);
      }),
      svg("text", { x: 110, y: height - 6 }, "call 1"), svg("text", { x: width - 30, y: height - 6, "text-anchor": "end" }, `call ${grouped(last)}`));
  }

  position(number) {
    const found = (this.space?.entries ?? []).findIndex((entry) => entry.label === `entry ${number}`);
    return found < 0 ? number : found;
  }

  table() {
    const all = this.app.report.moments ?? [];
    const traced = new Set(all.filter((moment) => moment.kind === "trace").map((moment) => `${moment.call} ${moment.entry}`));
    // That the sizes of a trace were new says nothing that the row of the trace does not say.
    const repeated = (moment) => moment.kind === "new sizes" && !moment.text && traced.has(`${moment.call} ${moment.entry}`);
    const moments = all.filter((moment) => (this.kind.value ? moment.kind === this.kind.value : !repeated(moment)));
    this.left.textContent = moments.length > SHOWN ? `The last ${SHOWN} of ${grouped(moments.length)} are listed.` : "";
    fill(this.body, moments.slice(-SHOWN).map((m) => h("tr", null, h("td", { class: "value" }, grouped(m.call), h("div", { class: "beneath" }, `${m.seconds.toFixed(2)} s`)),
      h("td", { class: "whole" }, m.entry === undefined ? null : swatch(this.position(m.entry)), m.kind, m.entry === undefined || this.app.fact("entries") === "1" ? null : `, entry ${m.entry}`, m.milliseconds !== undefined && h("div", { class: "beneath" }, `took ${m.milliseconds} ms`)), h("td", null, h("div", null, this.sizes(m)), m.text && h("div", { class: "quiet" }, m.text)))));
  }

  /** The sizes of a moment; a trace has those that came with it. */
  sizes(moment) {
    const came = (each) => each.call === moment.call && each.kind === "new sizes";
    const text = moment.sizes || (moment.kind === "trace" ? this.app.report.moments.find(came)?.sizes : "");
    return text ? code(text) : null;
  }

  frequent() {
    const points = this.space?.record.points ?? [];
    if (!points.length) return null;
    const moving = this.space.handles();
    const most = points[0].calls;
    return [h("h3", null, "Which sizes came how often"), this.frame("sizes by frequency", [...moving.map((i) => this.space.label(i)), "served by", "calls"],
      h("tbody", null, points.slice(0, SHOWN).map((point) => h("tr", null, moving.map((i) => h("td", { class: "value" }, grouped(point.values[i]))),
        h("td", null, point.entry === undefined ? "" : [swatch(point.entry), this.space.entries[point.entry].label]),
        h("td", { class: "value" }, h("span", { class: "bar" }, barOf((100 * point.calls) / most)), grouped(point.calls))))), [...moving.keys(), moving.length + 1])];
  }
}
