// What if: a slider and a number for each size, and at once who serves, what fails and by how much, and what comes out.

const SHOWN_ENTRIES = 6;

class WhatIf {
  constructor(app) {
    this.app = app;
    const title = fresh("whatif"); // a notebook may show several reports
    this.root = h("section", { class: "panel whatif", "aria-labelledby": title });
    this.rows = h("div", { class: "sliders" });
    this.answer = h("div", { class: "answer", role: "status", "aria-live": "polite" });
    this.results = h("div", { class: "results" });
    this.entries = h("div", { class: "verdicts" });
    append(this.root, [h("h2", { id: title }, "What if"), this.rows, this.answer, this.results, this.entries]);
  }

  show(space) {
    this.space = space;
    this.inputs = [];
    this.draw();
    space.onChange(() => this.space === space && this.update());
  }

  draw() {
    const space = this.space;
    this.inputs = [];
    const handles = space.handles();
    const fixed = space.free.filter((i) => space.slots[i].fixed);
    const derived = space.slots.map((_, i) => i).filter((i) => space.slots[i].derived !== undefined);
    // A label that is long stands above its slider, and then so do all: beside it, it would break in the middle of a word.
    this.long = space.free.some((slot) => this.name(slot).length + space.places(slot).length > 20);
    fill(
      this.rows,
      handles.length ? handles.map((slot) => this.row(slot)) : h("p", { class: "quiet" }, "No size varies here."),
      space.record.links.length > 0 && this.linking(),
      fixed.length > 0 &&
        h("details", null, h("summary", null, counted(fixed.length, "size"), " that every program has fixed"), fixed.map((slot) => this.row(slot))),
      derived.length > 0 &&
        h("details", null, h("summary", null, counted(derived.length, "value"), " that follow from these"), this.follow = h("p", { class: "quiet" })),
    );
    this.derived = derived;
    this.update();
  }

  /** The name of a size: the user's, or, in a trace, that of its symbol. */
  name(slot) {
    const record = this.space.slots[slot];
    return record.given || (this.app.report.kind === "trace" && record.name !== record.source ? record.name : "");
  }

  row(slot) {
    const { space } = this;
    const record = space.slots[slot];
    const low = Math.max(record.low ?? -record.top, -record.top);
    const label = space.label(slot);
    const places = space.places(slot);
    const name = this.name(slot);
    const slider = h("input", {
      type: "range", min: low, max: record.top, step: 1, "aria-label": label,
      oninput: () => space.set(slot, Number(slider.value)),
    });
    const number = h("input", {
      type: "text", inputmode: "numeric", pattern: "-?[0-9]+", "aria-label": `${label}, as a number`,
      oninput: () => this.typed(slot, number),
      onkeydown: (event) => this.stepped(slot, event),
    });
    this.inputs.push({ slot, slider, number });
    return h("div", { class: this.long ? "row long" : "row" }, h("span", { class: "label" }, name && h("b", null, name), name && " ", code(places)), slider, number);
  }

  typed(slot, input) {
    const text = input.value.trim();
    const { low, high } = this.space.slots[slot];
    const good = /^-?\d{1,40}$/.test(text) && (low === undefined || BigInt(text) >= BigInt(low)) && (high === undefined || BigInt(text) <= BigInt(high));
    input.toggleAttribute("aria-invalid", !good);
    if (good) this.space.set(slot, plain(text));
  }

  stepped(slot, event) {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const values = this.space.moved(this.space.values, [[slot, step * (event.shiftKey ? 10 : 1)]]);
    if (values) this.space.setAll(values);
  }

  linking() {
    const box = h("input", { type: "checkbox", checked: this.space.linked, onchange: () => { this.space.linked = box.checked; this.draw(); this.app.map?.draw(true); } });
    return h("label", { class: "check" }, box, " turn sizes together that must be equal");
  }

  update() {
    const { space } = this;
    for (const { slot, slider, number } of this.inputs) {
      slider.value = String(space.values[slot]);
      if (document.activeElement !== number || plain(number.value || "0") !== space.values[slot]) number.value = String(space.values[slot]);
    }
    if (this.derived.length) this.follow.textContent = this.derived.map((i) => `${space.slots[i].source} = ${space.values[i]}`).join(", ");
    const registers = space.tape.run(space.values).slice();
    const serving = space.first(registers);
    this.showAnswer(serving, registers);
    this.showResults(serving ?? (space.entries.length === 1 ? 0 : null), serving === null);
    this.showEntries(serving, registers);
  }

  showAnswer(serving, registers) {
    const { space } = this;
    const single = space.entries.length === 1 && !this.app.isCache;
    if (serving !== null) {
      const entry = space.entries[serving];
      const text = single ? "Every guard holds." : `${entry.label} serves this call.`;
      fill(this.answer, h("p", { class: "good" }, single ? "✓ " : swatch(serving), text, entry.runner ? h("span", { class: "quiet" }, ` Runner: ${entry.runner}`) : null));
      return;
    }
    const nearest = space.nearest(space.values);
    const said = single ? "These sizes are outside the guards." : "No entry serves this call: it would be traced.";
    fill(this.answer, h("p", { class: "bad" }, "✗ ", said), nearest ? this.wayOut(nearest) : h("p", null, "No call that passes was found near by."));
  }

  wayOut(nearest) {
    const { space } = this;
    const told = nearest.changed.map((slot) => `${space.label(slot)} = ${grouped(nearest.values[slot])}`);
    return h("p", null, nearest.how === "nearest" ? "The nearest that passes: " : `${nearest.how} call that passes: `, code(listed(told)), " ",
      h("button", { type: "button", class: "small", onclick: () => space.setAll(nearest.values) }, "go there"));
  }

  showResults(entry, outside) {
    const at = entry === null ? undefined : this.space.entries[entry].program;
    if (at === undefined) {
      fill(this.results);
      return;
    }
    const program = this.app.program(at);
    const registers = program.registers(this.space.values);
    const { record } = program;
    const later = record.symbols.filter((s) => s.slot === undefined);
    fill(
      this.results,
      h("h3", null, "Results and cost", outside ? h("span", { class: "quiet" }, " (if the guards held)") : null),
      later.map((s) => this.later(program, s)),
      h("table", { class: "shapes" }, h("tbody", null, record.outputs.map((each) => this.output(each, program, registers)))),
      Object.keys(record.costs).length > 0 && h("table", { class: "costs" }, h("tbody", null, Object.entries(record.costs).map(([name, index]) => this.cost(name, index, program, registers)))),
      this.key(record),
      record.notes.map((note) => h("p", { class: "quiet" }, note)),
    );
  }

  /** What the symbols in these formulas stand for. */
  key(record) {
    const shown = [...record.outputs.flatMap((each) => each.sizes), ...Object.values(record.costs)];
    const used = new Set(shown.flatMap((index) => record.formulas[index].symbols));
    const named = new Set(this.space.slots.map((slot) => slot.given)); // these are explained beside their sliders
    const rows = record.symbols.filter((s) => s.slot !== undefined && used.has(s.name) && !named.has(s.name));
    return rows.length > 0 && h("p", { class: "quiet key" }, rows.map((s, i) => [i > 0 && ", ", code(s.name), ` is ${s.whence.split(", ")[0]}`]));
  }

  later(program, symbol) {
    const input = h("input", { type: "number", min: 0, value: program.later[symbol.name] ?? symbol.hint ?? 0, "aria-label": `${symbol.name}, ${symbol.whence}`,
      oninput: () => { program.later[symbol.name] = Math.max(0, Math.trunc(Number(input.value) || 0)); this.space.changed(); } });
    return h("div", { class: "row" }, h("span", { class: "label" }, h("b", null, symbol.name), " ", symbol.whence || "known at run time only"), input);
  }

  output(tensor, program, registers) {
    const sizes = tensor.sizes.map((index) => program.record.formulas[index].text).join(", ");
    const values = tensor.sizes.map((index) => grouped(program.at(index, registers))).join(", ");
    return h("tr", null, h("th", { scope: "row" }, code(tensor.path)), h("td", null, code(tensor.dtype ? `${tensor.dtype}[${sizes}]` : "")),
      h("td", { class: "value" }, tensor.dtype ? code(`[${values}]`) : null));
  }

  cost(name, index, program, registers) {
    const words = { flops: ["operations", "FLOP"], read: ["bytes read", "B"], written: ["bytes written", "B"], memory: ["peak memory", "B"] };
    const [label, unit] = words[name] ?? [name, ""];
    const formula = program.record.formulas[index].text;
    return h("tr", null, h("th", { scope: "row" }, label), h("td", null, code(formula.length > 90 ? `${formula.slice(0, 89)}…` : formula, { title: formula.slice(0, 2000) })),
      h("td", { class: "value" }, withUnit(program.at(index, registers), unit)));
  }

  showEntries(serving, registers) {
    const { space } = this;
    const ranked = space.ranked(registers);
    const shown = ranked.slice(0, SHOWN_ENTRIES);
    if (serving !== null && !shown.some((row) => row.index === serving)) shown.unshift(ranked.find((row) => row.index === serving));
    const open = new Set([...this.entries.querySelectorAll("details[open]")].map((each) => each.dataset.entry));
    const first = this.entries.childElementCount === 0;
    fill(
      this.entries,
      h("h3", null, "Guards at these sizes"),
      shown.map(({ index, failing }, place) => {
        const entry = space.entries[index];
        const guards = entry.guards.filter((guard) => guard.kind !== "range" || failing.includes(guard));
        const state = failing.length ? `${failing.length} of ${guards.length} ${failing.length === 1 ? "fails" : "fail"}` : ["no guards", "its guard holds"][guards.length] ?? `all ${guards.length} hold`;
        return h("details", { "data-entry": index, open: first ? place === 0 : open.has(String(index)) || shown.length === 1 },
          h("summary", null, space.entries.length > 1 && swatch(index), `${entry.label}: `, h("span", { class: failing.length ? "bad" : "good" }, state)),
          h("ul", { class: "guards" }, guards.map((guard) => this.guard(guard, registers))));
      }),
      ranked.length > shown.length && h("p", { class: "quiet" }, `${counted(ranked.length - shown.length, "entry")} further away`),
    );
  }

  guard(guard, registers) {
    const { holds, gap } = this.space.verdict(guard, registers);
    const origin = guard.origin === undefined ? null : this.app.report.origins[guard.origin];
    return h("li", { class: holds ? "holds" : "fails", "data-register": guard.register },
      h("span", { class: "mark", role: "img", "aria-label": holds ? "holds" : "fails" }, holds ? "✓" : "✗"), " ", code(guard.words),
      gap ? h("span", { class: "gap" }, ` ${gap}`) : null, origin?.place ? h("span", { class: "quiet" }, ` ${origin.place}`) : null);
  }
}
