// The program: its ops with symbolic shapes and the user's lines.  A symbol that is chosen lights up wherever it flows.
// Where another program runs instead (padded, or with kernels merged), each op may be seen beside what became of it.

class ProgramView {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "program" });
    this.chosen = null;
    this.numbers = false;
  }

  show(space) {
    this.space = space;
    const entries = space.entries.map((entry, index) => ({ entry, index })).filter(({ entry }) => entry.program !== undefined);
    if (!entries.length) {
      fill(this.root, h("p", { class: "quiet" }, "There is no program here, only guards."));
      this.model = null;
      return;
    }
    const serving = entries.find(({ index }) => index === space.serving(space.values));
    const general = serving ?? entries.reduce((best, each) => (this.app.report.programs[each.entry.program].symbols.length > this.app.report.programs[best.entry.program].symbols.length ? each : best));
    this.select = h("select", { "aria-label": "program", onchange: () => this.open(Number(this.select.value)) }, entries.slice(0, 500).map(({ entry, index }) => h("option", { value: index, selected: index === general.index }, entry.label)));
    this.search = h("input", { type: "search", placeholder: "search ops and lines", "aria-label": "search ops", oninput: () => this.list() });
    this.toggle = h("input", { type: "checkbox", onchange: () => { this.numbers = this.toggle.checked; this.list(); } });
    this.beside = h("input", { type: "checkbox", onchange: () => this.list() });
    this.besideLabel = h("label", { class: "check" }, this.beside, " ", this.besideName = h("span"));
    this.symbols = h("div", { class: "chips", role: "group", "aria-label": "symbols" });
    this.told = h("p", { class: "quiet", role: "status" });
    this.body = h("div", { class: "ops", tabindex: 0, role: "region", "aria-label": "the ops of the program" });
    fill(this.root, h("div", { class: "tools" }, entries.length > 1 && this.select, this.search, h("label", { class: "check" }, this.toggle, " numbers at these sizes"), this.besideLabel), this.symbols, this.told, this.body);
    this.open(general.index);
    space.onChange(() => this.space === space && this.numbers && this.root.isConnected && this.list());
  }

  open(index) {
    this.model = this.app.program(this.space.entries[index].program);
    this.chosen = null;
    const { after } = this.model.record;
    this.besideLabel.hidden = !after;
    if (after) this.besideName.textContent = "the padded program beside it";
    this.list();
  }

  /** What became of each op, if that is to be seen. */
  get after() {
    return this.beside.checked ? this.model.record.after ?? null : null;
  }

  choose(name) {
    this.chosen = this.chosen === name ? null : name;
    this.list();
  }

  list() {
    const { record } = this.model;
    const registers = this.model.registers(this.space.values).slice();
    fill(this.symbols, record.symbols.map((s) => h("button", { type: "button", class: "chip", "aria-pressed": String(this.chosen === s.name), title: s.whence, onclick: () => this.choose(s.name) }, h("b", null, s.name), ` ${s.whence}`)));
    const wanted = this.search.value.trim().toLowerCase();
    const steps = record.steps.filter((step) => !wanted || `${step.op} ${step.args} ${this.originText(step)}`.toLowerCase().includes(wanted));
    const lit = this.chosen ? record.steps.filter((step) => this.touches(step)).length : 0;
    this.told.textContent = this.chosen ? `${this.chosen} flows through ${lit} of ${counted(record.steps.length, "op")}.` : `${counted(record.steps.length, "op")}, ${counted(record.lifted, "parameter")}. Choose a symbol to see where it flows.`;
    const rows = [];
    const { after } = this;
    const became = new Map();
    for (const step of after?.steps ?? []) became.set(step.source, [...(became.get(step.source) ?? []), step]);
    if (after) rows.push(this.summary(after));
    let line = null;
    for (const step of steps.slice(0, 3000)) {
      if (step.origin !== undefined && step.origin !== line) {
        line = step.origin;
        const origin = this.app.report.origins[line];
        rows.push(h("div", { class: "source" }, h("span", { class: "quiet" }, origin.place), " ", code(origin.text)));
      }
      const row = this.step(step, registers);
      rows.push(after?.steps.length ? h("div", { class: "pair" }, row, this.became(became.get(record.steps.indexOf(step)))) : row);
    }
    if (became.has(undefined)) rows.push(h("div", { class: "pair" }, h("div", { class: "op quiet" }, "at the end"), this.became(became.get(undefined))));
    fill(this.body, h("div", { class: "op io" }, "takes ", record.inputs.map((each) => [this.tensor(each, registers), " "])), rows, h("div", { class: "op io" }, "returns ", record.outputs.map((each) => [this.tensor(each, registers), " "])));
  }

  /** The whole of what runs instead, in a sentence or two, and what it reads. */
  summary(after) {
    const repairs = after.steps.filter((step) => step.inserted).length;
    const runs = after.steps.length > 0 && h("p", null, `What runs${after.sizes ? ` for ${after.sizes}` : ""}: ${counted(after.steps.length, "op")}, `, repairs ? h("b", null, `${repairs} of them repairs.`) : "none of them a repair.");
    const reads = after.reads.length > 0 && h("details", null, h("summary", null, "what it reads"), h("ul", null, after.reads.map((each) => h("li", null, code(each)))));
    return h("div", { class: "summary" }, runs, after.refused.map((text) => h("p", { class: "note" }, text)), reads);
  }

  /** The ops that stand for one that was traced; repairs are marked, and said once for those beside each other. */
  became(steps) {
    if (!steps) return h("div", { class: "became quiet" }, "nothing: merged with its neighbours, or computed before");
    let said = null;
    return h("div", { class: "became" }, steps.map((step) => {
      const why = step.inserted && step.why !== said ? h("div", { class: "why" }, step.why) : null;
      said = step.inserted ? step.why : null;
      return [why, h("div", { class: step.inserted ? "op inserted" : "op" }, h("code", { class: "tensor" }, step.outputs.join(", ")), step.outputs.length ? " = " : null, h("b", null, step.op), h("span", { class: "args" }, ` ${step.args}`))];
    }));
  }

  originText(step) {
    const origin = step.origin === undefined ? null : this.app.report.origins[step.origin];
    return origin ? `${origin.place} ${origin.text}` : "";
  }

  touches(step) {
    return step.outputs.some((each) => each.sizes.some((index) => this.model.record.formulas[index].symbols.includes(this.chosen)));
  }

  step(step, registers) {
    const lit = this.chosen && this.touches(step);
    return h("div", { class: `op${lit ? " lit" : ""}${step.kind === "assert" ? " assert" : ""}` }, step.outputs.map((each) => [this.tensor(each, registers), " "]), step.outputs.length ? "= " : null, h("b", null, step.op), h("span", { class: "args" }, ` ${step.args}`));
  }

  tensor(tensor, registers) {
    const sizes = tensor.sizes.flatMap((index, i) => {
      const formula = this.model.record.formulas[index];
      const lit = this.chosen && formula.symbols.includes(this.chosen);
      const shown = this.numbers ? grouped(this.model.at(index, registers)) : formula.text;
      return [i ? ", " : "", h("span", { class: lit ? "size lit" : "size" }, shown)];
    });
    return h("code", { class: "tensor" }, tensor.path || tensor.name, tensor.dtype ? [`: ${tensor.dtype}[`, sizes, "]"] : null);
  }
}
