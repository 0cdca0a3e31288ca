// An upper bound of epsilon of DP-SGD, by the privacy loss distribution: Poisson samples, one record added or removed.
//
// One step's loss is put on a grid. The mass of each cell goes to its two ends so that both its probabilities, with and
// without the record, stay what they were; by convexity of the hockey stick that can only raise delta (Doroshenko et al.
// 2022). The law of the sum is found by a fast Fourier transform of the law tilted towards epsilon, so that rounding is
// small beside delta; what wraps around or lies beyond the grid is added to delta, as is a millionth for rounding.
"use strict";

const MOST_POINTS = 2 ** 18;
const MOST_CELLS = 1e6;
const SPARE = 1e-4; // the share of delta that losses cut off at the upper end may take
const WRAPPED = 1e-9;
const ROUNDING = 1e-6; // a share of delta; the transform's own rounding is below 1e-8 of it for 10^6 steps

// The standard normal's upper tail, to some 1e-15 of it.
function tail(x) {
  if (x < 0) return 1 - tail(-x);
  if (x > 38) return 0;
  if (x < 2.5) {
    let term = x, sum = x;
    for (let k = 1; k < 80; k++) { term *= x * x / (2 * k + 1); sum += term; }
    return 0.5 - sum * Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
  }
  let fraction = 0;
  for (let k = 120; k > 0; k--) fraction = k / (x + fraction);
  return Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI) / (x + fraction);
}

// The probability that a normal variable lies between a and b; differences are taken where they lose nothing.
const between = (a, b) => (a > 0 ? tail(a) - tail(b) : tail(-b) - tail(-a));

// The least x whose tail, by a falling function, is at most a share.
function cut(falling, share, low, high) {
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (falling(middle) <= share) high = middle; else low = middle;
  }
  return high;
}

// One step's law on multiples of h: {first, mass, infinite}. `removed`: the record is in the data that ran. Losses of
// a total probability of at most `left` at the upper end count as infinite; those below `least` count as `least`.
function stepLaw(sigma, rate, removed, h, left, least = -Infinity) {
  const loss = (x) => Math.log(1 - rate + rate * Math.exp((2 * x - 1) / (2 * sigma * sigma)));
  const place = (l) => {
    const inside = (Math.expm1(l) + rate) / rate;
    return inside > 0 ? sigma * sigma * Math.log(inside) + 0.5 : -Infinity;
  };
  const ran = (a, b) => {
    const without = between(a / sigma, b / sigma);
    return removed ? (1 - rate) * without + rate * between((a - 1) / sigma, (b - 1) / sigma) : without;
  };
  const other = (a, b) => (removed ? between(a / sigma, b / sigma)
    : (1 - rate) * between(a / sigma, b / sigma) + rate * between((a - 1) / sigma, (b - 1) / sigma));
  let low = -cut((x) => ran(-Infinity, -x), left, 0, 40 * sigma);
  let high = cut((x) => ran(x, Infinity), left, 0, 1 + 40 * sigma);
  const infinite = removed ? ran(high, Infinity) : ran(-Infinity, low);
  if (removed) low = Math.max(low, place(least)); else high = Math.min(high, place(-least));
  const ends = removed ? [loss(low), loss(high)] : [-loss(high), -loss(low)];
  if (h === null) return ends[1] - ends[0];
  const first = Math.floor(ends[0] / h), last = Math.ceil(ends[1] / h);
  const mass = new Float64Array(last - first + 1);
  const at = (l) => Math.min(Math.max(place(removed ? l : -l), low), high);
  mass[0] += removed ? ran(-Infinity, low) : ran(high, Infinity);
  for (let i = 0; i + 1 < mass.length; i++) {
    const l = (first + i) * h, one = at(l), two = at(l + h), a = Math.min(one, two), b = Math.max(one, two);
    if (!(b > a)) continue;
    const p = ran(a, b), up = Math.min(Math.max((p - other(a, b) * Math.exp(l)) / -Math.expm1(-h), 0), p);
    mass[i] += p - up;
    mass[i + 1] += up;
  }
  return { first, mass, infinite, h };
}

// The logarithm of E exp(t loss) of one step.
function logMoment(law, t) {
  const top = t * (law.first + (t > 0 ? law.mass.length - 1 : 0)) * law.h;
  let sum = 0;
  for (let i = 0; i < law.mass.length; i++) {
    if (law.mass[i] > 0) sum += law.mass[i] * Math.exp(t * (law.first + i) * law.h - top);
  }
  return top + Math.log(sum);
}

const spread = (low, high, count) => Array.from({ length: count }, (_, i) => low * (high / low) ** (i / (count - 1)));
const TILTS = spread(0.02, 2e7, 120);

// In place, radix 2; `sign` -1 forward, 1 backward without the division.
function transform(re, im, sign) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j |= bit;
    if (i < j) { [re[i], re[j]] = [re[j], re[i]]; [im[i], im[j]] = [im[j], im[i]]; }
  }
  for (let size = 2; size <= n; size *= 2) {
    const half = size / 2, cos = new Float64Array(half), sin = new Float64Array(half);
    for (let k = 0; k < half; k++) { cos[k] = Math.cos(2 * Math.PI * k / size); sin[k] = sign * Math.sin(2 * Math.PI * k / size); }
    for (let start = 0; start < n; start += size) {
      for (let k = 0; k < half; k++) {
        const a = start + k, b = a + half, x = re[b] * cos[k] - im[b] * sin[k], y = re[b] * sin[k] + im[b] * cos[k];
        re[b] = re[a] - x; im[b] = im[a] - y; re[a] += x; im[a] += y;
      }
    }
  }
}

// Epsilon in one direction.
function oneDirection(sigma, rate, steps, delta, removed) {
  const left = SPARE * delta / steps;
  // A coarse law gives the tilt, that is the order of the best Renyi bound, and the part of the line that matters.
  const range = stepLaw(sigma, rate, removed, null, left);
  const coarse = stepLaw(sigma, rate, removed, range / 2048, left);
  const moments = TILTS.map((t) => logMoment(coarse, t));
  let best = 0;
  TILTS.forEach((t, i) => {
    if (i < TILTS.length - 5 && (steps * moments[i] - Math.log(delta)) / t < (steps * moments[best] - Math.log(delta)) / TILTS[best]) best = i;
  });
  const t = TILTS[best], centre = steps * moments[best], guess = (centre - Math.log(delta)) / t;
  if (!(guess < 1e4)) return Infinity;
  // Sums beyond these ends would wrap around to others: in the tilted law they are rarer than WRAPPED.
  const beyond = (other, moment) => (Math.log(WRAPPED) - steps * moment + centre) / (t - other);
  const high = Math.min(...TILTS.map((other, i) => (i > best ? beyond(other, moments[i]) : Infinity)));
  const low = Math.max(...[0.9, 0.75, 0.5, 0.25, 0.1, 0].map((share) => beyond(share * t, logMoment(coarse, share * t))));
  const width = (high - low) * 1.1;
  // Two ends in place of a cell add at most h^2 / 4 to a step's variance, and so some steps t h^2 / 12 to epsilon.
  const wanted = Math.sqrt(0.02 * guess / (t * steps));
  const points = Math.min(2 ** Math.ceil(Math.log2(Math.max(width / wanted, 512))), MOST_POINTS);
  const h = Math.max(width / points, stepLaw(sigma, rate, removed, null, left, -40 / t) / MOST_CELLS);
  const law = stepLaw(sigma, rate, removed, h, left, -40 / t), moment = logMoment(law, t);
  const re = new Float64Array(points), im = new Float64Array(points);
  for (let i = 0; i < law.mass.length; i++) {
    const place = (((law.first + i) % points) + points) % points;
    re[place] += law.mass[i] * Math.exp(t * (law.first + i) * h - moment);
  }
  transform(re, im, -1);
  for (let k = 0; k < points; k++) {
    const size = Math.exp(steps * 0.5 * Math.log(re[k] * re[k] + im[k] * im[k])), angle = steps * Math.atan2(im[k], re[k]);
    re[k] = size * Math.cos(angle); im[k] = size * Math.sin(angle);
  }
  transform(re, im, 1);
  const start = Math.floor(low / h), end = start + points;
  // A sum that wraps around from above is read as a smaller one: what it was worth is added.
  const steeper = [1.2, 1.5, 2, 3, 6, 20, 100].map((factor) => factor * t);
  const lost = Math.min(...steeper.map((tilt) => steps * logMoment(law, tilt) - tilt * end * h));
  const target = delta * (1 - ROUNDING) - steps * law.infinite - Math.exp(lost);
  // delta(epsilon) = sum over losses above epsilon of mass (1 - exp(epsilon - loss)), walked down from the largest loss.
  let above = 0, weighted = 0; // both times exp(t guess) to stay within range
  const weight = Math.exp(Math.min(steps * moment - t * guess, 700));
  for (let i = end - 1; i >= start; i--) {
    const l = i * h;
    if ((above - weighted * Math.exp(l - guess)) * weight > target) {
      return Math.max(0, guess + Math.log(Math.max((above - target / weight) / weighted, 0)));
    }
    const one = Math.max(re[((i % points) + points) % points] / points, 0) * Math.exp(-t * (l - guess));
    above += one;
    weighted += one * Math.exp(guess - l);
  }
  return target > 0 ? Math.max(0, start * h) : Infinity; // delta is small enough all over the grid
}

// An upper bound of epsilon, or the sentence that says which field is wrong.
function upperEpsilon(sigma, rate, steps, delta) {
  if (!(sigma >= 0.2 && sigma <= 1000)) return { problem: `Noise multiplier ${sigma}: give a number from 0.2 to 1000.` };
  if (!(rate > 0 && rate <= 1)) return { problem: `A batch of ${rate} of the records: give at least 1 and at most all of them.` };
  if (!(steps >= 1 && steps <= 1e6)) return { problem: `${steps} steps: this page counts up to a million.` };
  if (!(delta >= 1e-12 && delta < 0.1)) return { problem: `Delta ${delta}: give a number from 1e-12 to 0.1.` };
  return { epsilon: Math.max(...[true, false].map((removed) => oneDirection(sigma, rate, steps, delta, removed))) };
}

function roundedUp(value) {
  if (!(value > 0)) return String(value);
  const unit = 10 ** (Math.floor(Math.log10(value)) - 3);
  return Number((Math.ceil(value / unit) * unit).toPrecision(4)).toString();
}

if (typeof module !== "undefined") module.exports = { upperEpsilon, roundedUp };
