// The region map: for two sizes, which entry serves each pair of integers, the other sizes as they stand in "what if".

const MOST_COLUMNS = 220;
const MOST_ROWS = 140;
const MARGIN = { left: 58, bottom: 34, top: 8, right: 10 };

class RegionMap {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "map" });
  }

  show(space) {
    this.space = space;
    const handles = space.handles();
    [this.x = handles[0], this.y = this.x] = space.record.axes;
    space.onChange(() => this.space === space && this.moved());
    this.build(handles);
  }

  get flat() {
    return this.x === this.y || this.space.together(this.x).includes(this.y);
  }

  build(handles) {
    if (!handles.length) {
      fill(this.root, h("p", { class: "quiet" }, "No size varies, so there is no map."));
      this.canvas = null;
      return;
    }
    const choose = (which) => {
      const select = h("select", { "aria-label": which === "x" ? "size from left to right" : "size upwards",
        onchange: () => { this[which] = Number(select.value); this.reset(); this.draw(true); } },
      this.space.free.filter((i) => this.space.together(i)[0] === i).map((i) => h("option", { value: i, selected: this[which] === i }, this.space.label(i))));
      return select;
    };
    this.canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": "region map: arrow keys move the cross, plus and minus zoom, Enter takes the sizes",
      onpointerdown: (e) => this.press(e), onpointermove: (e) => this.hover(e), onpointerup: (e) => this.release(e), onpointerleave: () => this.leave(),
      onwheel: (e) => this.wheel(e), onkeydown: (e) => this.key(e) });
    this.readout = h("p", { class: "readout", role: "status", "aria-live": "polite" });
    this.caption = h("p", { class: "quiet" });
    this.legend = h("ul", { class: "legend" });
    const button = (text, label, action) => h("button", { type: "button", class: "small", "aria-label": label, title: label, onclick: action }, text);
    fill(
      this.root,
      h("div", { class: "tools axes" }, h("label", null, "→ ", choose("x")), h("label", null, "↑ ", choose("y")),
        button("+", "zoom in", () => this.zoom(0.5)), button("−", "zoom out", () => this.zoom(2)), button("all", "all: show the whole range", () => { this.reset(true); this.draw(); })),
      h("div", { class: "canvas-box" }, this.canvas), this.readout, this.legend, this.caption,
    );
    this.reset();
    this.cursor = null;
    this.resizing ??= new ResizeObserver(() => this.canvas && this.draw(true));
    this.resizing.disconnect();
    this.resizing.observe(this.canvas.parentElement);
  }

  /** The window that shows most of what came, or everything. */
  reset(everything = false) {
    const { slots } = this.space;
    const span = (slot) => {
      const low = Math.max(slots[slot].low ?? -slots[slot].top, -slots[slot].top);
      const came = (this.space.record.points ?? []).map((point) => Number(point.values[slot])).sort((a, b) => a - b);
      const usual = 2 * Math.max(8, slots[slot].start, came[Math.floor(came.length * 0.8)] ?? slots[slot].top);
      return [low, Math.max(everything ? slots[slot].top : Math.min(slots[slot].top, usual), Math.ceil(1.1 * Number(this.space.values[slot])))]; // room above the cross
    };
    this.window = { x: span(this.x), y: this.flat ? [0, 0] : span(this.y) };
  }

  moved() {
    if (this.canvas?.isConnected) this.draw();
  }

  draw(always = false) {
    if (!this.canvas || (!always && !this.canvas.isConnected)) return;
    const width = Math.max(200, this.canvas.parentElement.clientWidth);
    const height = this.flat ? 110 : Math.min(380, Math.max(240, Math.round(width * 0.55)));
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.style.width = `${width}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.plot = { left: MARGIN.left, top: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    this.colours();
    this.cells = this.compute();
    this.paint(context, width, height);
    this.showLegend();
  }

  colours() {
    const style = getComputedStyle(this.root);
    const read = (name) => style.getPropertyValue(name).trim();
    this.palette = Array.from({ length: COLOURS }, (_, i) => read(`--c${i}`));
    this.ink = { text: read("--ink"), quiet: read("--quiet"), paper: read("--paper"), miss: read("--miss"), hatch: read("--hatch"), cross: read("--accent") };
  }

  /**
   * Who serves the pairs that are shown: `xs` by `ys` of them, -1 for nobody.  A cell is one pair where every integer has
   * its own; where cells stand for several, each is a mosaic: its own pair, and pairs in between.
   */
  compute() {
    const { space } = this;
    const columns = steps(this.window.x, Math.min(MOST_COLUMNS, this.plot.width));
    const rows = this.flat ? { values: [null], stride: 1 } : steps(this.window.y, Math.min(MOST_ROWS, this.plot.height));
    const xs = withBetween(columns);
    const ys = withBetween(rows);
    const served = new Int16Array(xs.length * ys.length);
    const outside = new Uint8Array(served.length);
    const seen = new Set();
    ys.forEach((y, j) => {
      xs.forEach((x, i) => {
        const registers = space.tape.run(this.valuesAt(x, y));
        const found = space.first(registers) ?? -1;
        served[j * xs.length + i] = found;
        outside[j * xs.length + i] = space.outsideDeclared(registers) ? 1 : 0;
        seen.add(found);
      });
    });
    return { columns, rows, xs, ys, served, outside, seen };
  }

  valuesAt(x, y) {
    const values = [...this.space.values];
    this.space.assign(values, this.x, x);
    if (y !== null) this.space.assign(values, this.y, y);
    return values;
  }

  paint(context, width, height) {
    const { plot, cells, ink } = this;
    context.clearRect(0, 0, width, height);
    const nx = cells.columns.values.length;
    const ny = cells.rows.values.length;
    const w = plot.width / nx;
    const hgt = plot.height / ny;
    this.cell = { w, h: hgt };
    this.hatched(context);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture(cells.xs.length, cells.ys.length), plot.left, plot.top, plot.width, plot.height);
    this.edges(context, nx, ny, w, hgt);
    this.axes(context);
    this.dots(context);
    this.cross(context);
    context.strokeStyle = ink.quiet;
    context.lineWidth = 1;
    context.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.width + 1, plot.height + 1);
  }

  /** What no entry serves: hatched. */
  hatched(context) {
    const { plot, ink } = this;
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    context.fillStyle = ink.miss;
    context.fillRect(plot.left, plot.top, plot.width, plot.height);
    context.strokeStyle = ink.hatch;
    context.lineWidth = 1;
    for (let x = plot.left - plot.height; x < plot.left + plot.width; x += 8) {
      context.beginPath();
      context.moveTo(x, plot.top + plot.height);
      context.lineTo(x + plot.height, plot.top);
      context.stroke();
    }
    context.restore();
  }

  /** One pixel for each pair: the colour of who serves it, paler outside the declared ranges; nothing for a miss. */
  picture(nx, ny) {
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [nx, ny];
    const context = picture.getContext("2d");
    for (let j = 0; j < ny; j++) {
      for (let i = 0; i < nx; i++) {
        const found = this.cells.served[j * nx + i];
        if (found >= 0) {
          context.fillStyle = this.palette[found % COLOURS];
          context.fillRect(i, ny - 1 - j, 1, 1);
        }
        if (this.cells.outside[j * nx + i]) {
          context.globalAlpha = 0.55;
          context.fillStyle = this.ink.paper;
          context.fillRect(i, ny - 1 - j, 1, 1);
          context.globalAlpha = 1;
        }
      }
    }
    return picture;
  }

  /** Lines where who serves changes from one cell to the next. */
  edges(context, nx, ny, w, hgt) {
    const { plot, cells, ink } = this;
    if (w < 2.5 || cells.xs.length !== nx || cells.ys.length !== ny) return;
    context.strokeStyle = ink.text;
    context.globalAlpha = 0.75;
    context.lineWidth = 1;
    context.beginPath();
    for (let j = 0; j < ny; j++) {
      for (let i = 0; i < nx; i++) {
        const here = cells.served[j * nx + i];
        const x = Math.round(plot.left + i * w) + 0.5;
        const y = Math.round(plot.top + plot.height - j * hgt) + 0.5;
        if (i > 0 && cells.served[j * nx + i - 1] !== here) { context.moveTo(x, y); context.lineTo(x, y - hgt); }
        if (j > 0 && cells.served[(j - 1) * nx + i] !== here) { context.moveTo(x, y); context.lineTo(x + w, y); }
      }
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  axes(context) {
    const { plot, ink, window: shown } = this;
    context.fillStyle = ink.text;
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    for (const value of ticks(shown.x, plot.width / 70)) {
      const x = this.toX(value);
      context.fillText(grouped(value), x, plot.top + plot.height + 15);
      context.fillRect(x, plot.top + plot.height, 1, 4);
    }
    context.fillText(short(this.space.label(this.x), plot.width / 7), plot.left + plot.width / 2, plot.top + plot.height + 30);
    if (this.flat) return;
    context.textAlign = "right";
    for (const value of ticks(shown.y, plot.height / 34)) {
      const y = this.toY(value);
      context.fillText(grouped(value), plot.left - 6, y + 4);
      context.fillRect(plot.left - 4, y, 4, 1);
    }
    context.save();
    context.translate(12, plot.top + plot.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(short(this.space.label(this.y), plot.height / 7), 0, 0);
    context.restore();
  }

  /** The middle of the cell of a value, in pixels. */
  toX(value) {
    const { columns } = this.cells;
    return this.plot.left + ((Number(value) - columns.values[0]) / columns.stride + 0.5) * this.cell.w;
  }

  toY(value) {
    const { rows } = this.cells;
    if (this.flat) return this.plot.top + this.plot.height / 2;
    return this.plot.top + this.plot.height - ((Number(value) - rows.values[0]) / rows.stride + 0.5) * this.cell.h;
  }

  /** Recorded calls: full where the other sizes are those that are set, else a ring. */
  dots(context) {
    const { space, plot, ink } = this;
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    const moving = new Set([...space.together(this.x), ...(this.flat ? [] : space.together(this.y))]);
    const many = (space.record.points ?? []).length > 300;
    for (const point of space.record.points ?? []) {
      const same = space.free.every((i) => moving.has(i) || point.values[i] == space.values[i]);
      context.beginPath();
      const radius = many ? 1.2 : Math.min(7, 2.5 + Math.log2(point.calls));
      context.arc(this.toX(point.values[this.x]), this.toY(point.values[this.y]), radius, 0, 7);
      // Paper around ink: one of the two is seen on every colour.
      for (const [colour, width] of same ? [[ink.paper, many ? 1 : 3]] : [[ink.paper, many ? 1.5 : 4], [ink.text, many ? 0.5 : 1.5]]) {
        context.lineWidth = width;
        context.strokeStyle = colour;
        context.stroke();
      }
      context.fillStyle = ink.text;
      if (same) context.fill();
    }
    context.restore();
  }

  cross(context) {
    const { space, ink, plot } = this;
    const [x, y] = [this.toX(space.values[this.x]), this.toY(space.values[this.y])];
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    for (const [colour, size, reach] of [[ink.paper, 7, 12], [ink.text, 4.5, 11], [ink.cross, 2, 10]]) {
      context.strokeStyle = colour;
      context.lineWidth = size;
      context.beginPath();
      context.moveTo(x - reach, y); context.lineTo(x + reach, y);
      context.moveTo(x, y - reach); context.lineTo(x, y + reach);
      context.stroke();
    }
    if (this.cursor) {
      const { x: at, y: up } = this.cursor;
      for (const [colour, size] of [[ink.paper, 3], [ink.text, 1]]) {
        context.strokeStyle = colour;
        context.lineWidth = size;
        context.strokeRect(this.toX(at) - this.cell.w / 2, this.toY(up ?? 0) - this.cell.h / 2, this.cell.w, this.cell.h);
      }
    }
    context.restore();
  }

  showLegend() {
    const { space, cells } = this;
    const present = [...cells.seen].filter((index) => index >= 0).sort((a, b) => a - b);
    const cache = this.app.isCache;
    const name = (index) => (cache || space.entries.length > 1 ? space.entries[index].label : "the guards hold");
    fill(
      this.legend,
      present.slice(0, 12).map((index) => h("li", null, swatch(index), name(index))),
      present.length > 12 && h("li", null, `and ${present.length - 12} more`),
      h("li", null, swatch(null), cache ? "no entry: traced when it comes" : "some guard fails"),
      cells.outside.includes(1) && h("li", null, h("span", { class: "swatch veiled", "aria-hidden": "true" }), "outside the declared ranges"),
      (space.record.points ?? []).length > 0 && h("li", null, h("span", { class: "dot", "aria-hidden": "true" }), "recorded calls (rings: with other sizes elsewhere)"),
      h("li", null, h("span", { class: "plus", "aria-hidden": "true" }, "+"), "the sizes under “What if”"),
    );
    const apart = [["from left to right", cells.columns.stride], ["upwards", cells.rows.stride]].filter(([, stride]) => stride > 1);
    this.caption.textContent = apart.length
      ? `Cells are pairs of sizes ${listed(apart.map(([where, stride]) => `${stride} apart ${where}`))}, each a mosaic with pairs in between. Zoom in to see every pair.`
      : "Each cell is one pair of sizes: what is drawn is exact.";
  }

  // -- the pointer and the keys

  pairAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const i = Math.floor((event.clientX - box.left - this.plot.left) / this.cell.w);
    const j = Math.floor((this.plot.top + this.plot.height - (event.clientY - box.top)) / this.cell.h);
    const { columns, rows } = this.cells;
    if (i < 0 || j < 0 || i >= columns.values.length || j >= rows.values.length) return null;
    return { x: columns.values[i], y: rows.values[j] };
  }

  hover(event) {
    if (this.dragging) return this.drag(event);
    this.point(this.pairAt(event));
  }

  leave() {
    this.dragging = null;
    this.point(null);
  }

  point(pair) {
    this.cursor = pair;
    this.tell(pair);
    this.again ??= requestAnimationFrame(() => {
      this.again = null;
      const ratio = window.devicePixelRatio || 1;
      this.paint(this.canvas.getContext("2d"), this.canvas.width / ratio, this.canvas.height / ratio);
    });
  }

  /** Says who serves a pair, and which guards make the boundaries of its cell. */
  tell(pair) {
    if (!pair) return fill(this.readout, " ");
    const { space } = this;
    const here = this.valuesAt(pair.x, pair.y);
    const found = space.serving(here);
    const where = [`${space.label(this.x)} = ${grouped(pair.x)}`, ...(pair.y === null ? [] : [`${space.label(this.y)} = ${grouped(pair.y)}`])];
    const said = found === null ? "no entry" : space.entries[found].label;
    const borders = new Map();
    for (const [dx, dy] of [[-1, 0], [1, 0], [0, -1], [0, 1]]) {
      if (dy && pair.y === null) continue;
      const there = this.valuesAt(pair.x + dx * this.cells.columns.stride, pair.y === null ? null : pair.y + dy * this.cells.rows.stride);
      for (const { entry, guard } of space.between(here, there)) borders.set(guard.register, { entry, guard });
    }
    return fill(this.readout, code(where.join(", ")), ": ", swatch(found), said,
      borders.size > 0 && [". Boundary: ", [...borders.values()].slice(0, 3).map(({ guard }) => {
        const origin = guard.origin === undefined ? null : this.app.report.origins[guard.origin];
        return [code(guard.words), origin?.place ? ` (${origin.place}) ` : " "];
      })]);
  }

  press(event) {
    this.canvas.setPointerCapture?.(event.pointerId);
    this.dragging = { x: event.clientX, y: event.clientY, moved: false };
  }

  drag(event) {
    const i = Math.round((this.dragging.x - event.clientX) / this.cell.w) * this.cells.columns.stride;
    const j = this.flat ? 0 : Math.round((event.clientY - this.dragging.y) / this.cell.h) * this.cells.rows.stride;
    if (!i && !j) return;
    this.dragging = { x: event.clientX, y: event.clientY, moved: true };
    this.pan(i, j);
  }

  release(event) {
    const clicked = this.dragging && !this.dragging.moved;
    this.dragging = null;
    const pair = clicked && this.pairAt(event);
    if (pair) this.take(pair);
  }

  take(pair) {
    this.space.setAll(this.valuesAt(pair.x, pair.y));
  }

  pan(i, j) {
    const { slots } = this.space;
    const shift = ([low, high], by, slot) => {
      const least = slots[slot].low ?? -Infinity;
      const step = Math.max(by, least - low);
      return [low + step, high + step];
    };
    this.window = { x: shift(this.window.x, i, this.x), y: this.flat ? [0, 0] : shift(this.window.y, j, this.y) };
    this.draw();
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.5 : 1 / 1.5, this.pairAt(event));
  }

  /** Narrower or wider by a factor, about a pair (that of "what if" by default). */
  zoom(factor, about = null) {
    const { slots, values } = this.space;
    const scaled = ([low, high], middle, slot) => {
      const least = slots[slot].low ?? -(2 ** 40);
      const inside = Math.min(Math.max(Number(middle), low), high);
      const start = Math.max(least, Math.round(inside - (inside - low) * factor));
      return [start, Math.min(2 ** 40, Math.max(start + 7, Math.round(inside + (high - inside) * factor)))];
    };
    this.window = { x: scaled(this.window.x, about?.x ?? values[this.x], this.x), y: this.flat ? [0, 0] : scaled(this.window.y, about?.y ?? values[this.y], this.y) };
    this.draw();
  }

  key(event) {
    const { columns, rows } = this.cells;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key === "+" || event.key === "-") return this.zoom(event.key === "+" ? 0.5 : 2);
    if (event.key === "Enter" && this.cursor) return this.take(this.cursor);
    const move = moves[event.key];
    if (!move) return undefined;
    event.preventDefault();
    const at = this.cursor ?? { x: Number(this.space.values[this.x]), y: this.flat ? null : Number(this.space.values[this.y]) };
    const bounded = (value, values) => Math.min(Math.max(value, values[0]), values.at(-1));
    return this.point({ x: bounded(at.x + move[0] * columns.stride, columns.values), y: at.y === null ? null : bounded(at.y + move[1] * rows.stride, rows.values) });
  }
}

/** The integers of a span: each one, or the multiples of a power of two if there are more than fit. */
function steps([low, high], most) {
  let stride = 1;
  while ((high - low + 1) / stride > Math.max(8, Math.floor(stride === 1 ? most : most * 0.6))) stride *= 2; // a mosaic asks more often
  const first = Math.ceil(low / stride) * stride;
  const values = [];
  for (let value = first; value <= high; value += stride) values.push(value);
  return { values, stride };
}

/** The values of cells, and for each one in between where there are some: odd, where cells stand at even ones. */
function withBetween({ values, stride }) {
  return stride === 1 ? values : values.flatMap((value) => [value, value + ((stride >> 1) | 1)]);
}

/** Round numbers in a span, about so many. */
function ticks([low, high], count) {
  const rough = Math.max(1, (high - low) / Math.max(2, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough));
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, Math.max(3, Math.floor(most) - 1))}…` : text);
