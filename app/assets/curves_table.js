// Records in growing columns, with NaN for missing values. `version` changes whenever the content does.
export class Table {
  constructor(wanted) {
    [this.wanted, this.length, this.capacity, this.version, this.columns] = [wanted, 0, 256, 0, new Map()];
  }

  column(key) {
    if (!this.columns.has(key)) this.columns.set(key, new Float64Array(this.capacity).fill(NaN));
    return this.columns.get(key);
  }

  push(record) {
    if (this.length === this.capacity) {
      this.capacity *= 2;
      for (const [key, old] of this.columns) {
        const column = new Float64Array(this.capacity).fill(NaN, old.length);
        column.set(old);
        this.columns.set(key, column);
      }
    }
    for (const key in record) {
      const value = typeof record[key] === "boolean" ? Number(record[key]) : record[key];
      if (typeof value === "number" && (!this.wanted || this.wanted.has(key))) this.column(key)[this.length] = value;
    }
    this.length++;
    this.version++;
  }

  // Removes the rows from `step` on.
  cut(step) {
    const length = below(this.column("step"), step, this.length);
    if (length === this.length) return;
    for (const column of this.columns.values()) column.fill(NaN, length, this.length);
    this.length = length;
    this.version++;
  }

  get(key) { return this.columns.get(key)?.subarray(0, this.length) ?? null; }
  has(key) { return this.get(key)?.some((v) => !Number.isNaN(v)) ?? false; }
}

// Counts the values smaller than `value` among the first `length` ascending values, by bisection.
export function below(values, value, length) {
  let lo = 0, hi = length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (values[mid] < value) lo = mid + 1; else hi = mid;
  }
  return lo;
}
