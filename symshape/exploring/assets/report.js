// The report: a heading, "what if" beside tabs, and the two ways in: a page of its own, or a widget of a notebook.

const FORMAT = 1;

class App {
  constructor(report, root) {
    this.report = report;
    this.root = root;
    this.programs = new Map();
    this.spaces = report.spaces.map((record) => new SpaceModel(record));
    root.classList.add("symshape");
    this.whatif = new WhatIf(this);
    this.map = new RegionMap(this);
    this.tabs = [
      ["Map", this.map],
      ["Guards", new GuardList(this)],
      ...(report.spaces.some((space) => space.tree) ? [["Dispatch", new DispatchTree(this)]] : []),
      ...(report.spaces.some((space) => space.entries.some((entry) => entry.serving.length)) ? [["Serving", new Serving(this)]] : []),
      ...(report.kind === "cache" ? [["History", new Timeline(this)]] : []),
      ...(report.programs.length ? [["Program", new ProgramView(this)]] : []),
      ...(report.spaces.some((space) => space.entries.length > 1) ? [["Compare", new Compare(this)]] : []),
    ];
    this.draw();
  }

  program(index) {
    if (!this.programs.has(index)) this.programs.set(index, new ProgramModel(this.report.programs[index]));
    return this.programs.get(index);
  }

  /** Whether a call that nobody serves would be traced. */
  get isCache() {
    return ["cache", "dynamo", "tree"].includes(this.report.kind);
  }

  fact(name) {
    return this.report.facts.find(([key]) => key === name)?.[1];
  }

  draw() {
    const panels = this.tabs.map(([name, view]) => h("div", { class: "tabpanel", role: "tabpanel", id: fresh("panel"), tabindex: 0, hidden: true }, h("h2", { class: "printed" }, name), view.root));
    this.panels = panels;
    this.buttons = this.tabs.map(([name], i) => h("button", { type: "button", role: "tab", id: fresh("tab"), "aria-selected": "false", "aria-controls": panels[i].id, tabindex: -1, onclick: () => this.open(i), onkeydown: (e) => this.key(e, i) }, name));
    panels.forEach((panel, i) => panel.setAttribute("aria-labelledby", this.buttons[i].id));
    const body = h("div", { class: "columns" }, this.whatif.root, h("section", { class: "panel views", "aria-label": "views" }, h("div", { class: "tabs", role: "tablist", "aria-label": "views" }, this.buttons), panels));
    fill(this.root, this.header(), this.report.notes.map((note) => h("p", { class: "note" }, note)), this.spaces.length ? body : this.without());
    if (this.spaces.length) this.choose(0);
    else this.history?.show(null);
  }

  /** What is shown where there is no program: why calls run eagerly, if there were any. */
  without() {
    if (!this.report.moments?.length) return h("p", { class: "quiet" }, "Nothing was called yet, so there is nothing to see.");
    this.history = new Timeline(this);
    const said = this.fact("traces") === "0" ? "No call could be traced, so there is no program: the function runs eagerly." : "No program is stored any more.";
    return h("section", { class: "panel", "aria-label": "history" }, h("p", null, said), this.history.root);
  }

  header() {
    const theme = h("button", { type: "button", class: "small theme", "aria-label": "switch between dark and light", title: "dark or light", onclick: () => this.turnTheme() }, "◐");
    const spaces = this.spaces.length > 1 && h("label", { class: "spaces" }, "calls with ", h("select", { onchange: (e) => this.choose(Number(e.target.value)) }, this.spaces.map((space, i) => h("option", { value: i }, space.record.label || `structure ${i + 1}`))));
    this.structure = h("details", { class: "structure", hidden: true });
    return h("header", null, h("div", { class: "title" }, h("h1", null, this.report.title), theme),
      h("dl", { class: "facts" }, this.report.facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))), spaces, this.structure);
  }

  choose(index) {
    this.space = this.spaces[index];
    const { structure } = this.space.record;
    this.structure.hidden = structure.length === 0;
    fill(this.structure, h("summary", null, { trace: "fixed sizes", dynamo: "guards that are not about sizes" }[this.report.kind] ?? "what these calls have in common"), h("ul", null, structure.slice(0, 200).map((line) => h("li", null, code(line)))));
    this.shown = new Set();
    this.whatif.show(this.space);
    this.open(this.current ?? 0);
  }

  open(index) {
    this.current = index;
    this.buttons.forEach((button, i) => { button.setAttribute("aria-selected", String(i === index)); button.tabIndex = i === index ? 0 : -1; });
    this.panels.forEach((panel, i) => { panel.hidden = i !== index; });
    this.ready(index);
  }

  ready(index) {
    const view = this.tabs[index][1];
    if (this.shown.has(index)) { view.refresh?.(); return; }
    this.shown.add(index);
    view.show(this.space);
  }

  key(event, index) {
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: this.buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + this.buttons.length) % this.buttons.length;
    this.open(next);
    this.buttons[next].focus();
  }

  /** All views at once, as they are printed. */
  unfold() {
    this.panels.forEach((panel, i) => { panel.hidden = false; this.ready(i); });
  }

  fold() {
    this.open(this.current);
  }

  turnTheme() {
    const dark = this.isDark();
    this.root.dataset.theme = dark ? "light" : "dark";
    const page = this.root.ownerDocument.body;
    if (page.classList.contains("symshape-page")) page.dataset.theme = this.root.dataset.theme;
    this.map.draw(true);
  }

  isDark() {
    const chosen = this.root.dataset.theme;
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  }
}

function mount(data, root) {
  if (data.version !== FORMAT) {
    fill(root, h("p", null, `This report has format ${data.version}, but the page reads format ${FORMAT}.`));
    return null;
  }
  return new App(data, root);
}

/** The page that was saved: its report stands in a script element. */
function mountPage(page) {
  const root = page.getElementById("symshape");
  const app = mount(JSON.parse(page.getElementById("symshape-data").textContent), root);
  root.app = app;
  performance.mark("symshape-interactive");
  window.addEventListener("beforeprint", () => app?.unfold());
  window.addEventListener("afterprint", () => app?.fold());
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app?.map.draw(true));
}

/** The theme of the notebook around a widget, as JupyterLab and VS Code say it; null elsewhere. */
function themeAround(page) {
  const { jpThemeLight, vscodeThemeKind } = page.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "true" ? "light" : "dark";
  if (vscodeThemeKind !== undefined) return vscodeThemeKind.endsWith("light") ? "light" : "dark";
  return null;
}

/** What anywidget calls with the model of a widget; what it answers ends the widget. */
function render({ model, el }) {
  const root = h("div");
  el.append(root);
  root.app = mount(model.get("data"), root);
  const follow = () => {
    const theme = themeAround(root.ownerDocument);
    if (theme !== null) root.dataset.theme = theme;
    root.app?.map.draw(true);
  };
  const themes = new MutationObserver(follow);
  themes.observe(root.ownerDocument.body, { attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  follow();
  return () => themes.disconnect();
}

export default { render };
