// What serves the calls of each entry: padded programs for ranges of sizes, and what came of each symbol.

class Serving {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "serving" });
  }

  show(space) {
    const served = space.entries.map((entry, i) => [entry, i]).filter(([entry]) => entry.serving.length);
    fill(this.root, served.length ? served.map(([entry, i]) => this.entry(entry, i)) : h("p", { class: "quiet" }, "Nothing is padded here."));
  }

  entry(entry, index) {
    return [h("h3", null, swatch(index), entry.label, h("span", { class: "tag" }, counted(entry.calls, "call"))), entry.serving.map((part) => this.part(part))];
  }

  part(part) {
    const name = part.part || "all of it";
    if (part.reasons.length) return h("div", { class: "part" }, h("p", null, h("b", null, name), " runs eagerly:"), h("ul", null, part.reasons.map((reason) => h("li", null, reason))));
    const counts = part.buckets.some((bucket) => bucket.calls !== undefined);
    const replays = part.buckets.some((bucket) => bucket.replays.length || bucket.achieved);
    const most = Math.max(1, ...part.buckets.map((bucket) => bucket.calls ?? 0));
    return h("div", { class: "part" },
      h("p", null, h("b", null, name), ` ${part.runner}`, part.accounts.length ? h("span", { class: "beneath" }, `; ${part.accounts[0]}`) : null),
      part.buckets.length ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "buckets" }, h("table", null, h("thead", null, h("tr", null, ["bucket", counts && "calls", counts && "waste", "captured", "memory", replays && "a replay"].filter(Boolean).map((column) => h("th", { scope: "col" }, column)))),
        h("tbody", null, part.buckets.slice(0, 500).map((bucket) => this.bucket(bucket, counts, replays, most))))) : null,
      part.notes.map((note) => h("p", { class: "note" }, note)),
      part.padding.length ? h("details", null, h("summary", null, "what came of each symbol"), h("pre", { class: "excerpt", tabindex: 0, role: "region", "aria-label": "what came of each symbol" }, part.padding.join("\n"))) : null);
  }

  bucket(bucket, counts, replays, most) {
    const share = Math.round((100 * (bucket.calls ?? 0)) / most);
    return h("tr", null, h("th", { scope: "row" }, code(bucket.sizes)),
      counts ? h("td", { class: "whole" }, h("span", { class: "bar", "aria-hidden": "true" }, barOf(share)), grouped(bucket.calls)) : null,
      counts ? h("td", null, bucket.waste === undefined ? "" : `${Math.round(100 * bucket.waste)} %`) : null,
      h("td", null, h("span", { class: "whole" }, `${counted(bucket.captures, "time")},`), " ", h("span", { class: "whole" }, `${bucket.milliseconds.toFixed(1)} ms`)),
      h("td", { class: "whole" }, bucket.memory),
      replays && h("td", null, [...bucket.replays.map(([kernels, ms]) => `${Number(ms.toPrecision(3))} ms (${kernels})`), bucket.achieved].filter(Boolean).join(", ")));
  }
}
