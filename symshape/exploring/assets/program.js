// The program: its ops with symbolic shapes and the user's lines.  A symbol that is chosen lights up wherever it flows.

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
    this.symbols = h("div", { class: "chips", role: "group", "aria-label": "symbols" });
    this.told = h("p", { class: "quiet", role: "status" });
    this.body = h("div", { class: "ops" });
    fill(this.root, h("div", { class: "tools" }, entries.length > 1 && this.select, this.search, h("label", { class: "check" }, this.toggle, " numbers at these sizes")), this.symbols, this.told, this.body);
    this.open(general.index);
    space.onChange(() => this.space === space && this.numbers && this.root.isConnected && this.list());
  }

  open(index) {
    this.model = this.app.program(this.space.entries[index].program);
    this.chosen = null;
    this.list();
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
    let line = null;
    for (const step of steps.slice(0, 3000)) {
      if (step.origin !== undefined && step.origin !== line) {
        line = step.origin;
        const origin = this.app.report.origins[line];
        rows.push(h("div", { class: "source" }, h("span", { class: "quiet" }, origin.place), " ", code(origin.text)));
      }
      rows.push(this.step(step, registers));
    }
    fill(this.body, h("div", { class: "op io" }, "takes ", record.inputs.map((each) => [this.tensor(each, registers), " "])), rows, h("div", { class: "op io" }, "returns ", record.outputs.map((each) => [this.tensor(each, registers), " "])));
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
