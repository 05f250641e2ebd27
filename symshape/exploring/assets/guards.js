// The list of guards by the user's line, with a search; and which guards imply which.

class GuardList {
  constructor(app) {
    this.app = app;
    this.search = h("input", { type: "search", placeholder: "search guards, lines, ops", "aria-label": "search guards", oninput: () => this.draw() });
    this.quiet = h("input", { type: "checkbox", onchange: () => this.draw() });
    this.list = h("div", { class: "lines" });
    this.count = h("p", { class: "quiet", role: "status" });
    this.graph = h("div");
    this.root = h("div", null, h("div", { class: "tools" }, this.search, h("label", { class: "check" }, this.quiet, " show fixed sizes and layouts too")), this.count, this.graph, this.list);
  }

  show(space) {
    this.space = space;
    this.groups = this.grouped();
    fill(this.graph, this.implications());
    this.draw();
    space.onChange(() => this.space === space && this.root.isConnected && this.draw());
  }

  /** Guards by the line that needed them, each with the entries that have it. */
  grouped() {
    const lines = new Map();
    this.space.entries.forEach((entry, index) => {
      for (const guard of entry.guards) {
        if (guard.kind === "range") continue;
        const key = guard.origin ?? -1;
        if (!lines.has(key)) lines.set(key, new Map());
        const rows = lines.get(key);
        if (!rows.has(guard.register)) rows.set(guard.register, { guard, entries: [] });
        rows.get(guard.register).entries.push(index);
      }
    });
    return lines;
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const registers = this.space.tape.run(this.space.values).slice();
    let shown = 0;
    const blocks = [];
    for (const [key, rows] of this.groups) {
      const origin = key < 0 ? null : this.app.report.origins[key];
      const hay = origin ? `${origin.place} ${origin.text} ${origin.asked}` : "";
      const kept = [...rows.values()].filter(({ guard }) =>
        (this.quiet.checked || (guard.kind !== "static" && guard.kind !== "layout")) && `${guard.text} ${guard.words} ${hay}`.toLowerCase().includes(wanted));
      if (!kept.length) continue;
      shown += kept.length;
      if (blocks.length < 200) blocks.push(this.block(origin, kept, registers));
    }
    this.count.textContent = shown ? counted(shown, "guard") : "No guard: what fits the structure of the arguments is served.";
    fill(this.list, blocks);
  }

  block(origin, rows, registers) {
    return h("article", { class: "line" },
      h("h3", null, origin?.place || origin?.text || "stated without a line", origin?.asked ? h("span", { class: "tag" }, origin.asked) : null),
      origin?.excerpt.length > 0 && h("pre", { class: "excerpt", tabindex: 0, "aria-label": `source around ${origin.place}` },
        origin.excerpt.map(([number, text]) => h("span", { class: number === origin.line ? "here" : "" }, `${String(number).padStart(4)}  ${text}\n`))),
      !origin?.excerpt.length && origin?.place && origin.text ? h("pre", { class: "excerpt" }, origin.text) : null,
      h("ul", { class: "guards" }, rows.map(({ guard, entries }) => this.row(guard, entries, registers))));
  }

  row(guard, entries, registers) {
    const { holds, gap } = this.space.verdict(guard, registers);
    const many = this.space.entries.length > 1;
    return h("li", { class: holds ? "holds" : "fails" },
      h("span", { class: "mark", role: "img", "aria-label": holds ? "holds" : "fails" }, holds ? "✓" : "✗"), " ", code(guard.text),
      guard.words !== guard.text ? [" ", h("span", { class: "quiet" }, "that is "), code(guard.words)] : null,
      gap ? h("span", { class: "gap" }, ` ${gap}`) : null,
      many ? h("span", { class: "quiet" }, " in ", entries.slice(0, 8).map((i) => [h("span", { class: "whole" }, swatch(i), this.space.entries[i].label), " "]), entries.length > 8 ? `and ${entries.length - 8} more` : null) : null,
      guard.note ? h("span", { class: "tag" }, guard.note) : null);
  }

  /** Which guards follow from which: those that say nothing new on the left, what they follow from on the right. */
  implications() {
    const entry = this.space.entries[0];
    const left = entry.guards.map((guard, i) => i).filter((i) => entry.guards[i].implied_by.length);
    if (this.space.record.verdict || !left.length) {
      return this.space.record.verdict ? h("p", { class: "bad" }, "✗ ", this.space.record.verdict) : null;
    }
    const right = [...new Set(left.flatMap((i) => entry.guards[i].implied_by))].sort((a, b) => a - b);
    const height = 34 * Math.max(left.length, right.length) + 10;
    const at = (items, i) => 22 + 34 * items.indexOf(i) + ((Math.max(left.length, right.length) - items.length) * 34) / 2;
    const label = (i, x, y, anchor) => svg("text", { x, y: y + 4, "text-anchor": anchor }, short(entry.guards[i].text, 44));
    return h("figure", { class: "implications" }, h("figcaption", null, "Guards that say nothing new (left), and what they follow from (right): proven."),
      svg("svg", { viewBox: `0 0 720 ${height}`, role: "img", "aria-label": left.map((i) => `${entry.guards[i].text} follows from ${listed(entry.guards[i].implied_by.map((j) => entry.guards[j].text))}`).join("; ") },
        left.flatMap((i) => entry.guards[i].implied_by.map((j) => svg("path", { d: `M 330 ${at(left, i)} C 360 ${at(left, i)} 360 ${at(right, j)} 390 ${at(right, j)}` }))),
        left.map((i) => label(i, 322, at(left, i), "end")), right.map((j) => label(j, 398, at(right, j), "start"))));
  }
}
