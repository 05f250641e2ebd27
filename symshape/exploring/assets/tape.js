// Runs a tape: the steps that guards/terms/tape.py wrote, on integers as Python computes with them.
//
// Doubles where the tape is proven exact for these values (`exact`), BigInt elsewhere.  A result that does not exist
// (something was divided by 0) is NaN in doubles and null in BigInt; as in Python it spoils what needs it and no more.

const KINDS = [
  "symbol", "const", "mul", "add", "floordiv", "mod", "min", "max", "ite", "true", "false", "eq", "ne", "le", "and", "or",
];
const CODE = Object.fromEntries(KINDS.map((kind, code) => [kind, code]));

/** Python's remainder: it has the sign of the divisor. */
function pythonMod(a, b) {
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
}

function pythonModBig(a, b) {
  const rest = a % b;
  return rest !== 0n && rest < 0n !== b < 0n ? rest + b : rest;
}

class Tape {
  /** @param {{steps: Array, exact: number, slots: number}} record as Python wrote it */
  constructor(record) {
    this.record = record;
    this.exact = record.exact;
    this.codes = record.steps.map(([kind]) => CODE[kind]);
    this.operands = record.steps.map(([, ...operands]) => operands);
    this.doubles = new Float64Array(record.steps.length);
    this.big = null; // operands with BigInt constants, made when first needed
  }

  /** Whether doubles are exact for these values (numbers or BigInts). */
  fits(values) {
    if (this.exact < 0) return false;
    for (const value of values) {
      if (!(value <= this.exact && value >= -this.exact)) return false;
    }
    return true;
  }

  /** The registers after running every step: numbers, or BigInts where the values are too large for doubles. */
  run(values) {
    if (this.fits(values)) return this.runDoubles(values.map(Number));
    return this.runBig(values.map(BigInt));
  }

  /** As run, for numbers that fit; the array is used again by the next run. */
  runDoubles(values) {
    const { codes, operands, doubles: r } = this;
    for (let i = 0; i < codes.length; i++) {
      const o = operands[i];
      switch (codes[i]) {
        case 0: r[i] = values[o[0]]; break;
        case 1: r[i] = Number(o[0]); break;
        case 2: { let p = 1; for (const k of o) p *= r[k]; r[i] = p; break; }
        case 3: { let s = Number(o[0]); for (let k = 1; k < o.length; k += 2) s += o[k] * r[o[k + 1]]; r[i] = s; break; }
        case 4: { const a = r[o[0]], b = r[o[1]]; r[i] = b === 0 ? NaN : (a - pythonMod(a, b)) / b; break; }
        case 5: { const b = r[o[1]]; r[i] = b === 0 ? NaN : pythonMod(r[o[0]], b); break; }
        case 6: { let m = r[o[0]]; for (const k of o) m = Math.min(m, r[k]); r[i] = m; break; }
        case 7: { let m = r[o[0]]; for (const k of o) m = Math.max(m, r[k]); r[i] = m; break; }
        case 8: { const c = r[o[0]]; r[i] = c !== c ? NaN : c ? r[o[1]] : r[o[2]]; break; }
        case 9: r[i] = 1; break;
        case 10: r[i] = 0; break;
        case 11: { const a = r[o[0]]; r[i] = a !== a ? NaN : a === 0 ? 1 : 0; break; }
        case 12: { const a = r[o[0]]; r[i] = a !== a ? NaN : a !== 0 ? 1 : 0; break; }
        case 13: { const a = r[o[0]]; r[i] = a !== a ? NaN : a <= 0 ? 1 : 0; break; }
        default: {
          const stop = codes[i] === CODE.or ? 1 : 0; // a part that decides does so whatever the others are
          let found = 1 - stop;
          for (const k of o) {
            if (r[k] === stop) { found = stop; break; }
            if (r[k] !== r[k]) found = NaN;
          }
          r[i] = found;
        }
      }
    }
    return r;
  }

  runBig(values) {
    this.big ??= this.record.steps.map((step) => this.bigOperands(step));
    const { codes, big } = this;
    const r = new Array(codes.length);
    for (let i = 0; i < codes.length; i++) r[i] = this.bigStep(codes[i], big[i], r, values);
    return r;
  }

  bigOperands([kind, ...operands]) {
    if (kind === "const") return [BigInt(operands[0])];
    if (kind === "add") return operands.map((part, k) => (k === 0 || k % 2 === 1 ? BigInt(part) : part));
    return operands;
  }

  bigStep(code, o, r, values) {
    if (code === 0) return values[o[0]];
    if (code === 1) return o[0];
    if (code === 9 || code === 10) return code === 9;
    if (code === 3) {
      let sum = o[0];
      for (let k = 1; k < o.length; k += 2) {
        if (r[o[k + 1]] === null) return null;
        sum += o[k] * r[o[k + 1]];
      }
      return sum;
    }
    const parts = o.map((k) => r[k]);
    if (code === 8) return parts[0] === null ? null : parts[0] ? parts[1] : parts[2];
    if (code >= CODE.and) {
      const stop = code === CODE.or;
      return parts.includes(stop) ? stop : parts.includes(null) ? null : !stop;
    }
    if (parts.includes(null)) return null;
    const [a, b] = parts;
    switch (code) {
      case 2: return parts.reduce((x, y) => x * y);
      case 4: return b === 0n ? null : (a - pythonModBig(a, b)) / b;
      case 5: return b === 0n ? null : pythonModBig(a, b);
      case 6: return parts.reduce((x, y) => (y < x ? y : x));
      case 7: return parts.reduce((x, y) => (y > x ? y : x));
      case 11: return a === 0n;
      case 12: return a !== 0n;
      default: return a <= 0n; // le
    }
  }
}

/** Whether a register holds true: what is not defined does not. */
const isTrue = (value) => value === true || value === 1;
/** Whether a register has a value. */
const isDefined = (value) => value !== null && value === value;
