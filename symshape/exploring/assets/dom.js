// Making elements.  Text of the user's program reaches the page as text nodes and nothing else.

/** An element: h("p", {class: "quiet", onclick: f}, "text", child, ...); null children are left out. */
function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** As h, for SVG. */
function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces what an element holds. */
function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

const code = (text, attributes) => h("code", attributes, text);

/** A number for people: 1234567 is 1,234,567. */
function grouped(value) {
  return value === null || value !== value ? "undefined" : String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** A large number with a unit: 17.9 GFLOP, 1.63 GB. */
function withUnit(value, unit) {
  const size = Number(value);
  if (!Number.isFinite(size)) return "unknown";
  const steps = ["", "k", "M", "G", "T", "P", "E"];
  let step = 0;
  let left = size;
  while (Math.abs(left) >= 1000 && step < steps.length - 1) [left, step] = [left / 1000, step + 1];
  return `${step === 0 ? left : left.toPrecision(3)} ${steps[step]}${unit}`;
}

/** "3 calls", "1 call", "2 entries". */
function counted(count, word) {
  const plural = word.endsWith("y") ? `${word.slice(0, -1)}ies` : `${word}s`;
  return `${grouped(count)} ${Number(count) === 1 ? word : plural}`;
}

/** Words as a list: "a, b and c". */
function listed(words) {
  return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words.join("");
}

const COLOURS = 16;

/** The style class of an entry's colour, and its mark for those who do not see colours. */
const colourOf = (index) => `c${index % COLOURS}`;

/** A small square in the colour of an entry. */
const swatch = (index) => h("span", { class: `swatch ${index === null ? "none" : colourOf(index)}`, "aria-hidden": "true" });

let identity = 0;
/** An id that no other element has. */
const fresh = (word) => `symshape-${word}-${identity++}`;
