// One space: the integers that one may turn, who serves them, and what fails.  No drawing.

const FAR = 4096; // how far one integer is moved in search of a call that passes
const NEAR = 48; // how far two are

class SpaceModel {
  constructor(record) {
    this.record = record;
    this.slots = record.slots;
    this.entries = record.entries;
    this.tape = new Tape(record.tape);
    this.values = record.slots.map((slot) => slot.start);
    this.linked = true;
    this.listeners = [];
    this.free = record.slots.map((_, i) => i).filter((i) => record.slots[i].derived === undefined);
    this.groupOf = record.slots.map((_, i) => record.links.find((group) => group.includes(i)) ?? [i]);
    this.derive(this.values);
  }

  /** The slots that turn together with this one. */
  together(slot) {
    return this.linked ? this.groupOf[slot] : [slot];
  }

  /** One slot for each that can be turned on its own. */
  handles() {
    const moving = this.free.filter((i) => !this.slots[i].fixed);
    return moving.filter((i) => this.together(i).find((j) => moving.includes(j)) === i);
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  set(slot, value) {
    this.assign(this.values, slot, value);
    this.changed();
  }

  setAll(values) {
    this.values = values.map(plain);
    this.changed();
  }

  changed() {
    for (const listener of this.listeners) listener();
  }

  /** Writes a value, and those that follow from it, into an array of values. */
  assign(values, slot, value) {
    for (const each of this.together(slot)) values[each] = value;
    return this.derive(values);
  }

  derive(values) {
    const rows = this.slots.flatMap((slot, i) => (slot.derived === undefined ? [] : [[i, slot.derived]]));
    if (rows.length) {
      const registers = this.tape.run(values);
      for (const [i, register] of rows) if (isDefined(registers[register])) values[i] = plain(registers[register]);
    }
    return values;
  }

  /** The position of the entry that serves these values, or null: the first whose guards all hold. */
  serving(values) {
    const registers = this.tape.run(values);
    return this.first(registers);
  }

  first(registers) {
    for (let i = 0; i < this.entries.length; i++) {
      if (this.holds(i, registers)) return i;
    }
    return null;
  }

  holds(entry, registers) {
    for (const guard of this.entries[entry].guards) if (!isTrue(registers[guard.register])) return false;
    return true;
  }

  /** Whether the declared ranges of some entry are left. */
  outsideDeclared(registers) {
    return this.entries.some((entry) =>
      entry.guards.some((guard) => guard.kind === "declared" && !isTrue(registers[guard.register])));
  }

  /** What can be said of a guard: whether it holds, and if not, by how much it fails, in words. */
  verdict(guard, registers) {
    const value = registers[guard.register];
    if (isTrue(value)) return { holds: true, gap: "" };
    if (!isDefined(value)) return { holds: false, gap: "a division by 0" };
    const [kind, operand] = this.record.tape.steps[guard.register];
    if (kind !== "le" && kind !== "eq") return { holds: false, gap: "" };
    const off = registers[operand];
    if (!isDefined(off)) return { holds: false, gap: "" };
    return { holds: false, gap: `off by ${grouped(off < 0 ? -off : off)}` };
  }

  /** Entries with how many of their guards fail, the fewest first. */
  ranked(registers) {
    const rows = this.entries.map((entry, index) => ({
      index,
      failing: entry.guards.filter((guard) => !isTrue(registers[guard.register])),
    }));
    return rows.sort((a, b) => a.failing.length - b.failing.length || a.index - b.index);
  }

  /** The nearest values that some entry serves: fewest sizes changed, then the least change; null if none was found. */
  nearest(from) {
    const handles = this.handles();
    return this.nearestOne(from, handles) ?? this.nearestTwo(from, handles) ?? this.nearestKnown(from);
  }

  nearestOne(from, handles) {
    for (let step = 1; step <= FAR; step++) {
      for (const slot of handles) {
        for (const sign of [1, -1]) {
          const values = this.moved(from, [[slot, sign * step]]);
          if (values && this.serving(values) !== null) return { values, changed: [slot], how: "nearest" };
        }
      }
    }
    return null;
  }

  nearestTwo(from, handles) {
    for (let distance = 2; distance <= NEAR; distance++) {
      for (const [a, b] of pairs(handles)) {
        for (let first = 1; first < distance; first++) {
          for (const [p, q] of [[1, 1], [1, -1], [-1, 1], [-1, -1]]) {
            const values = this.moved(from, [[a, p * first], [b, q * (distance - first)]]);
            if (values && this.serving(values) !== null) return { values, changed: [a, b], how: "a near" };
          }
        }
      }
    }
    return null;
  }

  /** A recorded call, or the values that a slot starts with. */
  nearestKnown(from) {
    const known = [this.slots.map((slot) => slot.start), ...(this.record.points ?? []).map((point) => point.values.map(plain))];
    const passing = known.filter((values) => this.serving(values) !== null);
    if (!passing.length) return null;
    const distance = (values) => values.reduce((sum, value, i) => sum + Math.abs(Number(value) - Number(from[i])), 0);
    const values = passing.reduce((best, each) => (distance(each) < distance(best) ? each : best));
    return { values, changed: this.free.filter((i) => values[i] != from[i]), how: "a" };
  }

  moved(from, moves) {
    const values = [...from];
    for (const [slot, step] of moves) {
      const { low, high } = this.slots[slot];
      const value = plain(BigInt(from[slot]) + BigInt(step));
      if ((low !== undefined && value < low) || (high !== undefined && value > high)) return null;
      this.assign(values, slot, value);
    }
    return values;
  }

  /** Guards that tell two points apart: those of the entry that serves one and not the other. */
  between(here, there) {
    const a = this.tape.run(here).slice();
    const b = this.tape.run(there).slice();
    const one = this.first(a);
    const other = this.first(b);
    if (one === other) return [];
    const found = [];
    const differing = (entry, holds, fails) => {
      if (entry === null) return;
      for (const guard of this.entries[entry].guards) {
        if (isTrue(holds[guard.register]) && !isTrue(fails[guard.register])) found.push({ entry, guard });
      }
    };
    if (one !== null && (other === null || one < other)) differing(one, a, b);
    else differing(other, b, a);
    return found;
  }

  /** A short name of a size: the user's own, or else where it is read first. */
  label(slot) {
    const group = this.together(slot).map((i) => this.slots[i]);
    return group.find((each) => each.given)?.given ?? group[0].source;
  }

  /** All places where a size, and those that turn with it, are read. */
  places(slot) {
    return this.together(slot).map((i) => this.slots[i].source).join(" = ");
  }
}

/** A number where it is exact, else a BigInt. */
function plain(value) {
  if (typeof value === "number") return value;
  const big = BigInt(value);
  return big > -(2n ** 53n) && big < 2n ** 53n ? Number(big) : big;
}

function pairs(items) {
  return items.flatMap((a, i) => items.slice(i + 1).map((b) => [a, b]));
}

/** The values of a program's formulas at the values of its space; null where a symbol is known only at run time. */
class ProgramModel {
  constructor(record) {
    this.record = record;
    this.tape = new Tape(record.tape);
    this.later = {}; // values that someone gave to symbols without a slot
  }

  registers(values) {
    const known = this.record.symbols.map((s) => (s.slot === undefined ? (this.later[s.name] ?? s.hint ?? 0) : values[s.slot]));
    return this.tape.run(known);
  }

  /** Whether a formula holds a symbol that only the run knows. */
  isLater(formula) {
    return formula.symbols.some((name) => this.record.symbols.find((s) => s.name === name)?.slot === undefined);
  }

  at(index, registers) {
    const value = registers[this.record.formulas[index].register];
    return isDefined(value) ? value : null;
  }
}
