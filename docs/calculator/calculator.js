// Reads an upper bound of epsilon off the table, at the corner of the grid's cell that is least private.
"use strict";

function codesOf(table) {
  if (!table.read) {
    const bytes = atob(table.codes);
    table.read = new Uint16Array(bytes.length / 2);
    for (let i = 0; i < table.read.length; i++) table.read[i] = bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1);
  }
  return table.read;
}

// The place of the largest entry of a rising list that is at most the value (or -1), and of the smallest that is at least it.
function below(list, value) { let i = list.length - 1; while (i >= 0 && list[i] > value) i--; return i; }
function above(list, value) { let i = 0; while (i < list.length && list[i] < value) i++; return i; }

function upperEpsilon(table, sigma, records, batch, epochs, delta) {
  const good = (x) => Number.isFinite(x) && x > 0;
  if (![sigma, records, batch, epochs, delta].every(good) || batch > records || delta >= 1) {
    return { problem: "Every field must be above 0, the batch at most the records, delta below 1." };
  }
  const rate = batch / records;
  const steps = Math.max(1, Math.ceil((epochs * records / batch) * (1 - 2 ** -45)));
  // Rates are compared a little larger than they are: the quotient may have been rounded down.
  const s = below(table.sigmas, sigma), q = above(table.rates, rate * (1 + 2 ** -50)), n = above(table.steps, steps);
  // Deltas fall in the table: the first that is at most the one that was asked for.
  const d = table.deltas.findIndex((one) => one <= delta);
  if (s < 0 || q === table.rates.length || n === table.steps.length || d < 0) {

    return { problem: `Outside of the table: noise from ${table.sigmas[0]}, rates up to ${table.rates[table.rates.length - 1]}, ` +
      `steps up to ${table.steps[table.steps.length - 1]}, delta from ${table.deltas[table.deltas.length - 1]}.` };
  }
  const code = codesOf(table)[((d * table.sigmas.length + s) * table.rates.length + q) * table.steps.length + n];
  if (code === table.none) return { problem: "No useful bound." };
  return { epsilon: table.least * Math.pow(table.ratio, code) * (1 + 1e-9), rate, steps };
}

function roundedUp(value) {
  const unit = Math.pow(10, Math.floor(Math.log10(value)) - 2);
  return Number((Math.ceil(value / unit) * unit).toPrecision(3)).toString();
}

if (typeof module !== "undefined") module.exports = { upperEpsilon, roundedUp };
