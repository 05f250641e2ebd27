// Two entries side by side: what tells them apart, in words.

class Compare {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "compare" });
  }

  show(space) {
    this.space = space;
    if (space.entries.length < 2) {
      fill(this.root, h("p", { class: "quiet" }, "There is only one entry."));
      return;
    }
    const choose = (label, at) => h("select", { "aria-label": label, onchange: () => this.draw() }, space.entries.slice(0, 1000).map((entry, i) => h("option", { value: i, selected: i === at }, entry.label)));
    this.first = choose("the first entry", space.entries.length - 2);
    this.second = choose("the second entry", space.entries.length - 1);
    this.out = h("div", { role: "status" });
    fill(this.root, h("div", { class: "tools" }, this.first, " and ", this.second), this.out);
    this.draw();
  }

  draw() {
    const [a, b] = [Number(this.first.value), Number(this.second.value)];
    const { space } = this;
    const [one, two] = [space.entries[a], space.entries[b]];
    if (a === b) return fill(this.out, h("p", { class: "quiet" }, "Choose two entries."));
    const proven = space.record.comparisons.find(([i, j]) => (i === a && j === b) || (i === b && j === a));
    const words = proven && proven[0] === a ? proven[2] : proven?.[2].replaceAll(/\b(first|second)\b/g, (word) => (word === "first" ? "second" : "first"));
    return fill(this.out,
      words ? h("ul", null, words.replaceAll("the first", one.label).replaceAll("the second", two.label).split("; ").map((part) => h("li", null, sentence(part)))) : h("p", { class: "quiet" }, "What follows compares guards as they are written; nothing was proven about these two."),
      h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "asked by"), h("th", { scope: "col" }, "guards"))),
        h("tbody", null, this.row([swatch(a), `${one.label} alone`], only(one, two)), this.row([swatch(b), `${two.label} alone`], only(two, one)), this.row("both", both(one, two)))),
      this.programs(one, two));
  }

  row(name, guards) {
    return h("tr", null, h("th", { scope: "row" }, name), h("td", null, guards.length ? h("ul", null, guards.slice(0, 60).map((guard) => h("li", null, code(guard.words), guard.kind === "static" ? h("span", { class: "quiet" }, " fixed") : null))) : h("span", { class: "quiet" }, "nothing")));
  }

  programs(one, two) {
    if (one.program === undefined || two.program === undefined) return null;
    const [p, q] = [one, two].map((entry) => this.app.report.programs[entry.program]);
    const shapes = (program) => program.outputs.map((each) => `${each.dtype}[${each.sizes.map((i) => program.formulas[i].text).join(", ")}]`).join("; ");
    const ops = [p, q].map((program) => program.steps.map((step) => step.op));
    const missing = (x, y) => [...new Set(x.filter((op) => !y.includes(op)))];
    const told = [];
    if (missing(...ops).length) told.push(`only ${one.label} runs ${listed(missing(...ops))}`);
    if (missing(...[...ops].reverse()).length) told.push(`only ${two.label} runs ${listed(missing(...[...ops].reverse()))}`);
    return [h("h3", null, "Their programs"), h("p", null, `${one.label}: ${counted(ops[0].length, "op")}, `, code(shapes(p)), `; ${two.label}: ${counted(ops[1].length, "op")}, `, code(shapes(q)), told.length ? `; ${told.join("; ")}.` : "; the same kinds of ops.")];
  }
}

const plainGuards = (entry) => entry.guards.filter((guard) => guard.kind !== "range");
const only = (one, two) => plainGuards(one).filter((guard) => !two.guards.some((other) => other.register === guard.register));
const both = (one, two) => plainGuards(one).filter((guard) => two.guards.some((other) => other.register === guard.register));
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
