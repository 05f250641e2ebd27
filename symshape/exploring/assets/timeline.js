// The history of a cache: what was traced, when, for which sizes and why; which sizes came how often.

/** In this order; kinds that are not known here come after them. */
const LANES = ["trace", "new sizes", "bucket made", "bucket chosen", "captured", "kernels timed", "dropped", "padding refused", "ran op by op", "fallback", "evicted"];

class Timeline {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "timeline" });
    this.kind = h("select", { "aria-label": "what is listed", onchange: () => this.table() });
    this.body = h("tbody");
  }

  show(space) {
    this.space = space;
    const moments = this.app.report.moments ?? [];
    const kinds = new Set(moments.map((moment) => moment.kind));
    this.lanes = [...LANES.filter((lane) => kinds.delete(lane)), ...kinds];
    fill(this.kind, h("option", { value: "" }, "everything"), this.lanes.map((lane) => h("option", { value: lane }, lane)));
    fill(this.root,
      moments.length ? [this.picture(moments), h("div", { class: "tools" }, h("label", null, "list ", this.kind)), this.frame("history", ["call", "after", "what", "sizes", "why", "took"], this.body)] : h("p", { class: "quiet" }, "No history was recorded."),
      this.frequent());
    this.table();
  }

  frame(name, columns, body) {
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, h("table", null, h("thead", null, h("tr", null, columns.map((word) => h("th", { scope: "col" }, word)))), body));
  }

  /** One lane for each kind, calls from left to right. */
  picture(moments) {
    const { lanes } = this;
    const last = Math.max(1, ...moments.map((moment) => moment.call), Number(this.app.fact("calls") ?? 0));
    const x = (call) => 110 + (call / last) * 640;
    const height = 30 * lanes.length + 34;
    return svg("svg", { class: "lanes", viewBox: `0 0 780 ${height}`, role: "img", "aria-label": lanes.map((lane) => `${counted(moments.filter((m) => m.kind === lane).length, "event")}: ${lane}`).join("; ") },
      lanes.map((lane, i) => [svg("text", { x: 100, y: 30 * i + 24, "text-anchor": "end" }, lane), svg("line", { x1: 110, x2: 750, y1: 30 * i + 20, y2: 30 * i + 20 })]),
      moments.map((m) => {
        const y = 30 * lanes.indexOf(m.kind) + 20;
        const tip = svg("title", null, `call ${m.call}: ${m.kind} ${m.sizes} ${m.text}`);
        const colour = m.entry === undefined ? "none" : colourOf(this.position(m.entry));
        return m.kind === "trace" ? svg("rect", { x: x(m.call) - 4, y: y - 9, width: 8, height: 18, class: `mark-${colour}` }, tip) : svg("circle", { cx: x(m.call), cy: y, r: 4, class: `mark-${colour}` }, tip);
      }),
      svg("text", { x: 110, y: height - 6 }, "call 1"), svg("text", { x: 750, y: height - 6, "text-anchor": "end" }, `call ${grouped(last)}`));
  }

  position(number) {
    const found = this.space.entries.findIndex((entry) => entry.label === `entry ${number}`);
    return found < 0 ? number : found;
  }

  table() {
    const moments = (this.app.report.moments ?? []).filter((moment) => !this.kind.value || moment.kind === this.kind.value);
    fill(this.body, moments.slice(-400).map((m) => h("tr", null, h("td", { class: "value" }, grouped(m.call)), h("td", { class: "value" }, `${m.seconds.toFixed(2)} s`),
      h("td", { class: "whole" }, m.entry === undefined ? null : swatch(this.position(m.entry)), m.kind, m.entry === undefined ? null : `, entry ${m.entry}`), h("td", null, this.sizes(m)), h("td", null, m.text),
      h("td", { class: "value" }, m.milliseconds === undefined ? "" : `${m.milliseconds} ms`))));
  }

  /** The sizes of a moment; a trace has those that came with it. */
  sizes(moment) {
    const came = (each) => each.call === moment.call && each.kind === "new sizes";
    const text = moment.sizes || (moment.kind === "trace" ? this.app.report.moments.find(came)?.sizes : "");
    return text ? code(text) : null;
  }

  frequent() {
    const points = this.space.record.points ?? [];
    if (!points.length) return null;
    const moving = this.space.free.filter((i) => !this.space.slots[i].fixed);
    const most = points[0].calls;
    return [h("h3", null, "Which sizes came how often"), this.frame("sizes by frequency", [...moving.map((i) => this.space.slots[i].source), "served by", "calls"],
      h("tbody", null, points.slice(0, 200).map((point) => h("tr", null, moving.map((i) => h("td", { class: "value" }, grouped(point.values[i]))),
        h("td", null, point.entry === undefined ? "" : [swatch(point.entry), this.space.entries[point.entry].label]),
        h("td", { class: "value" }, h("span", { class: "bar" }, barOf((100 * point.calls) / most)), grouped(point.calls))))))];
  }
}
