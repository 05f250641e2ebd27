// The dispatch tree: what a look-up asks, and how many of the recorded calls went which way.

class DispatchTree {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "tree" });
  }

  show(space) {
    this.space = space;
    this.draw();
    space.onChange(() => this.space === space && this.root.isConnected && this.draw());
  }

  draw() {
    const { tree } = this.space.record;
    if (!tree) {
      fill(this.root, h("p", { class: "quiet" }, "There is one set of guards: nothing to choose from."));
      return;
    }
    this.serving = this.space.serving(this.space.values);
    this.whole = Math.max(1, tree.calls);
    this.drawn = 0;
    fill(this.root, h("p", { class: "quiet" }, "How a call finds its entry: the size or formula that is looked at, its value, and the entries that are tried for it, in order.", tree.calls ? " Bars are shares of the recorded calls." : null), h("ul", null, this.node(tree)));
  }

  node(node) {
    this.drawn += 1;
    const share = Math.round((100 * node.calls) / this.whole);
    const head = h("span", { class: "edge" }, node.label ? h("b", null, node.label) : null, node.label ? " → " : null,
      node.asks ? ["look at ", code(short(node.asks, 120))] : this.leaf(node),
      this.space.record.tree.calls > 0 && [h("span", { class: "bar", role: "img", "aria-label": `${share} % of the calls` }, barOf(share)), h("span", { class: "quiet" }, counted(node.calls, "call"))]);
    if (!node.branches.length) return h("li", null, head);
    const shown = node.branches.slice(0, this.drawn > 300 ? 5 : 60);
    return h("li", null, h("details", { open: this.drawn < 40 }, h("summary", null, head),
      h("ul", null, shown.map((each) => this.node(each)), node.branches.length > shown.length && h("li", { class: "quiet" }, `and ${node.branches.length - shown.length} more answers`))));
  }

  leaf(node) {
    if (!node.entries.length) return "nothing: a miss";
    return ["try ", node.entries.slice(0, 12).map((i) => h("span", { class: i === this.serving ? "served" : "" }, swatch(i), this.space.entries[i].label, " ")), node.entries.length > 12 ? `and ${node.entries.length - 12} more ` : null];
  }
}

/** A bar for a share of 0 to 100. */
function barOf(share) {
  return svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: share, height: 8 }));
}
