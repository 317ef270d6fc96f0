// Whether a line separates the classes, decided in exact fractions, with the proof either way.
//
// prove(data) returns one of
//   {kind: "empty", separable: true}                       no points, or points of one class only: nothing to separate
//   {kind: "separable", separable: true,
//    weight: [[Rational, Rational], ...], bias: [Rational, ...],     one row with K = 2, K rows with K > 2, as in stateAt
//    least: Rational            the least y·s (s_y − s_r with K > 2) of all samples: 1, by the choice of the weights
//    gammaSquared: Rational     K = 2: the half-width of the widest strip, squared (γ* of max_margin(bias="free"));
//                               K > 2: least²/‖w‖² of these weights, as Hyperplane.squared_margin
//    gamma: number,
//    supports: [index, ...],    the samples with the least y·s: with K = 2 those on the edges of the strip
//    nearest: [[Rational, Rational], [Rational, Rational]] | null}   K = 2: the nearest points of the hulls of class 0, 1
//   {kind: "weakly separable" | "not separable", separable: false,
//    point: [Rational, Rational] | null,                   K = 2: a point in both hulls
//    weights: [{index, rival, fraction: Rational}, ...],   K = 2: fractions of either class sum to 1 and make the point
//                                                          (at most four points). K > 2: Σ fraction·(φ(x, y) − φ(x, rival))
//                                                          = 0, fractions sum to 1, φ(x, k) = (x, 1) in block k.
//                                                          rival is a class 0 .. K−1. All fractions are positive.
//    weight, bias | null}       weakly separable: a line with every point on its side or on itself, and not all on itself
//    With K > 2 the two kinds are not told apart: "not separable".
function prove(data) {
  if (new Set(data.labels).size < 2) return { kind: "empty", separable: true };
  const rows = separationRows(data, Rational.of(1));
  const found = nearestToOrigin(rows);
  if (found.squared.isZero()) return overlapProof(data, rows, found.fractions);
  return data.classes === 2 ? stripProof(data) : weightsProof(data, rows, found);
}

// --- for every K: the rows' hull ----------------------------------------------------------------------------------------

// Every sample asks for s_y > s_k for all other classes k: w·z > 0 for the rows z = φ(x, y) − φ(x, k), where w holds the
// weights of all classes and φ(x, k) is (x, 1) in block k; with K = 2 a row is y·(x, 1). The point of the rows' hull that is
// nearest to the origin decides (Gordan): if it is 0, it is a mean of rows that no w can be positive on; else it is such a w.

// A mean of rows that is 0. With K = 2, its halves of either class are one point in both hulls, of at most four samples.
function overlapProof(data, rows, fractions) {
  const two = data.classes === 2;
  const weights = fractions.map(({ row, fraction }) => ({ ...rows.about[row], fraction: two ? fraction.times(2) : fraction }));
  const proof = { kind: "not separable", separable: false, point: null, weights, weight: null, bias: null };
  if (!two) return proof;
  weights.sort((one, other) => one.index - other.index);
  const own = weights.filter(({ index }) => data.labels[index] === 1);
  proof.point = [0, 1].map((j) => own.reduce((sum, { index, fraction }) => sum.plus(fraction.times(data.points[index][j])), new Rational(0n)));
  return { ...proof, ...weakLine(data) };
}

function weightsProof(data, rows, { fractions, squared }) {
  // divided by the squared distance, the least w·z is 1
  const { weight, bias } = weightsOf(data, rows, fractions.map((each) => ({ ...each, fraction: each.fraction.over(squared) })));
  const length = weight.flat().reduce((sum, value) => sum.plus(value.times(value)), new Rational(0n));
  return separableProofOf(data, weight, bias, new Rational(1n).over(length), null);
}

function separableProofOf(data, weight, bias, gammaSquared, nearest) {
  const supports = supportsOf(data, weight, bias);
  const gamma = Math.sqrt(gammaSquared.toNumber());
  return { kind: "separable", separable: true, weight, bias, least: new Rational(1n), gammaSquared, gamma, supports, nearest };
}

// --- whole numbers ----------------------------------------------------------------------------------------------------

// The points times a power of two that makes all of them whole: {whole: [[BigInt, BigInt], ...], unit: BigInt}.
// Sums and products of whole numbers need no fractions, which is much faster.
function wholePoints(points) {
  const exact = points.map((x) => x.map(Rational.of));
  const unit = exact.flat().reduce((most, value) => (value.denominator > most ? value.denominator : most), 1n);
  return { whole: exact.map((x) => x.map((value) => value.numerator * (unit / value.denominator))), unit };
}

const difference = (p, q) => [p[0] - q[0], p[1] - q[1]];
const dot = (p, q) => p[0] * q[0] + p[1] * q[1];
const cross = (p, q) => p[0] * q[1] - p[1] * q[0];

// Twice the area of the triangle a, b, p: positive if p lies to the left of the way from a to b, 0 if on its line.
const turn = (a, b, p) => cross(difference(b, a), difference(p, a));

// --- two classes: the hulls -------------------------------------------------------------------------------------------

// The corners of the convex hull, counterclockwise, as indices into points; one for a single point, two for a segment.
function convexHull(points) {
  const { whole } = wholePoints(points);
  return hullOf(whole, whole.map((_, i) => i));
}

// The same of some points that are whole. Andrew's way: from left to right along the bottom, and back along the top,
// dropping every corner that does not turn left.
function hullOf(whole, chosen) {
  const byPlace = (i, j) => signOfWhole(whole[i][0] - whole[j][0]) || signOfWhole(whole[i][1] - whole[j][1]);
  const sorted = [...chosen].sort(byPlace).filter((i, n, all) => n === 0 || byPlace(all[n - 1], i) !== 0);
  const chain = (order) => {
    const corners = [];
    for (const i of order) {
      while (corners.length > 1 && turn(...corners.slice(-2).map((j) => whole[j]), whole[i]) <= 0n) corners.pop();
      corners.push(i);
    }
    return corners.slice(0, -1);  // the last corner is the first of the other chain
  };
  return sorted.length < 2 ? sorted : [...chain(sorted), ...chain([...sorted].reverse())];
}

// The hull of every class.
function hullsOf(data, whole) {
  const members = Array.from({ length: data.classes }, () => []);
  data.labels.forEach((label, i) => members[label].push(i));
  return members.map((chosen) => hullOf(whole, chosen));
}

// The samples at the corners of the classes' hulls, as a data set of its own: any line has all samples of a class on one
// side if it has these.
function cornersOf(data) {
  const chosen = hullsOf(data, wholePoints(data.points).whole).flat();
  return { points: chosen.map((i) => data.points[i]), labels: chosen.map((i) => data.labels[i]), classes: data.classes };
}

// The sides of a hull as pairs of corners; a segment has one.
function sidesOf(hull) {
  if (hull.length < 3) return hull.length === 2 ? [hull] : [];
  return hull.map((corner, n) => [corner, hull[(n + 1) % hull.length]]);
}

// --- two classes: a line that separates weakly ------------------------------------------------------------------------

// A line with every point on its side or on itself, and not all on itself; null if there is none. Such a line can be
// turned until a side of a hull lies on it; if all points are on one line, it stands at right angles to a side.
function weakLine(data) {
  const { whole, unit } = wholePoints(data.points);
  const hulls = hullsOf(data, whole);
  const corners = hulls.flat();
  for (const [a, b] of hulls.flatMap(sidesOf)) {
    const along = difference(whole[b], whole[a]);
    for (const [normal, through] of [[[-along[1], along[0]], a], [along, a], [along, b]]) {
      const sideOf = (i) => signOfWhole(dot(normal, difference(whole[i], whole[through])));
      const values = corners.map((i) => sideOf(i) * signOfClass(data.labels[i]));
      if (values.every((value) => value === 0)) continue;
      for (const side of [1n, -1n]) {
        if (values.every((value) => BigInt(value) * side >= 0n)) return lineThrough(normal, whole[through], side, unit);
      }
    }
  }
  return null;
}

// w·x + b in the units of the points: w = side·normal, and 0 at the given point.
function lineThrough(normal, through, side, unit) {
  const bias = new Rational(-side * dot(normal, through), unit);
  return { kind: "weakly separable", weight: [normal.map((value) => new Rational(side * value))], bias: [bias] };
}

// --- two classes: the widest strip ------------------------------------------------------------------------------------

// The strip between the hulls is widest at right angles to the way between their nearest points p and q, the line half
// way. With w = 2·(q − p)/‖q − p‖² the scores at p and q are −1 and +1, and the half-width is 1/‖w‖ = ‖q − p‖/2.
function stripProof(data) {
  const [start, end] = nearestPoints(data);
  const way = end.map((value, j) => value.minus(start[j]));
  const squared = way[0].times(way[0]).plus(way[1].times(way[1]));
  const weight = way.map((value) => value.times(2).over(squared));
  const middle = start.map((value, j) => value.plus(end[j]).over(2));
  const bias = weight[0].times(middle[0]).plus(weight[1].times(middle[1])).negated();
  return separableProofOf(data, [weight], [bias], squared.over(4), [start, end]);
}

// The nearest points of the hulls of class 0 and class 1: their difference is that of two corners which is nearest to the
// origin, or a mean of some.
function nearestPoints(data) {
  const { whole, unit } = wholePoints(data.points);
  const hulls = hullsOf(data, whole);
  const about = hulls[0].flatMap((p) => hulls[1].map((q) => [p, q]));
  const way = about.map(([p, q]) => difference(whole[q], whole[p]));
  const { fractions } = nearestToOrigin({ about, product: (i, j) => dot(way[i], way[j]), unit });
  return [0, 1].map((side) => [0, 1].map((j) => fractions.reduce(
    (sum, { row, fraction }) => sum.plus(fraction.times(new Rational(whole[about[row][side]][j], unit))), new Rational(0n),
  )));
}

// The samples whose y·s, or least s_y − s_r, is 1. Doubles rule out those that are clearly farther away.
function supportsOf(data, weight, bias) {
  const rounded = { weight: weight.map((row) => row.map((value) => value.toNumber())), bias: bias.map((value) => value.toNumber()) };
  const tolerance = 1 + 2 ** 20 * roundingOf(rounded, reachOf(data.points));  // the weights were rounded, too
  return data.points.flatMap((x, i) => {
    const far = slackAt(rounded, x, data.labels[i]) > tolerance;
    return !far && leastFraction(exactSlacks(weight, bias, x, data.labels[i])).equals(1) ? [i] : [];
  });
}

// y·s, or s_y − s_k for all other classes k, in fractions.
function exactSlacks(weight, bias, x, label) {
  const scores = weight.map((row, k) => row[0].times(x[0]).plus(row[1].times(x[1])).plus(bias[k]));
  if (scores.length === 1) return [scores[0].times(signOfClass(label))];
  return scores.filter((_, k) => k !== label).map((score) => scores[label].minus(score));
}

// Σ fraction·z as weights and biases per class.
function weightsOf(data, rows, fractions) {
  const weight = Array.from({ length: data.classes }, () => [new Rational(0n), new Rational(0n)]);
  const bias = Array.from({ length: data.classes }, () => new Rational(0n));
  for (const { row, fraction } of fractions) {
    const { index, rival } = rows.about[row];
    for (const [k, share] of [[data.labels[index], fraction], [rival, fraction.negated()]]) {
      weight[k] = weight[k].map((value, j) => value.plus(share.times(data.points[index][j])));
      bias[k] = bias[k].plus(share);
    }
  }
  return { weight, bias };
}

// The rows as their inner products, which are all that is needed: {about: [{index, rival}, ...], product(i, j), unit}.
// Products are whole numbers, times unit². A constant feature √β makes the bias a weight; with K = 2 a row is y·(x, √β).
// Only corners of the classes' hulls have rows: those of other points are means of them, and change no hull of rows.
function separationRows(data, beta) {
  const { whole, unit } = wholePoints(data.points);
  const constant = beta.times(unit * unit).numerator;  // whole, as β is 0, 1 or a sum of squares of coordinates
  const others = (label) => Array.from({ length: data.classes }, (_, k) => k).filter((k) => k !== label);
  const corners = hullsOf(data, whole).flat().sort((i, j) => i - j);
  const about = corners.flatMap((index) => others(data.labels[index]).map((rival) => ({ index, rival })));
  const own = (row) => data.labels[about[row].index];
  const blocks = data.classes === 2
    ? (i, j) => (own(i) === own(j) ? 1n : -1n)
    : (i, j) => {
      const [k, m, r, s] = [own(i), own(j), about[i].rival, about[j].rival];
      return BigInt((k === m) - (k === s) - (r === m) + (r === s));
    };
  const product = (i, j) => {
    const factor = blocks(i, j);
    return factor === 0n ? 0n : factor * (dot(whole[about[i].index], whole[about[j].index]) + constant);
  };
  return { about, product, unit };
}

// --- the point of a hull that is nearest to the origin ----------------------------------------------------------------

// Wolfe's way, in exact numbers, so that it ends with the point itself: the point of the hull that some rows (the
// corral) make is known, as a mean with positive fractions. If no row lies nearer along its direction, it is the one.
// Else the nearest such row joins, and the corral shrinks until its nearest point is within it.
// Returns {fractions: [{row, fraction}, ...] positive and of sum 1, squared: Rational, the squared distance}.
function nearestToOrigin({ about, product, unit }) {
  const every = about.map((_, row) => row);
  const first = every.reduce((best, row) => (product(row, row) < product(best, best) ? row : best), 0);
  let corral = [{ row: first, fraction: new Rational(1n) }];
  for (;;) {
    const { parts, total } = overOneDenominator(corral);
    // the point's products with all rows, times total: whole numbers
    const along = every.map((row) => corral.reduce((sum, each, n) => sum + parts[n] * product(row, each.row), 0n));
    const squared = corral.reduce((sum, each, n) => sum + parts[n] * along[each.row], 0n);  // times total²
    const lowest = every.reduce((best, row) => (along[row] < along[best] ? row : best), 0);
    if (along[lowest] * total >= squared) {
      return { fractions: corral, squared: new Rational(squared, total * total * unit * unit) };
    }
    corral = shrunk([...corral, { row: lowest, fraction: new Rational(0n) }], product);
  }
}

// From a mean of rows towards the nearest point of the plane through them all, as far as fractions stay 0 or more; rows
// whose fraction became 0 leave, until the nearest point has positive fractions.
function shrunk(corral, product) {
  for (;;) {
    const wanted = nearestInPlane(corral.map(({ row }) => row), product);
    const limits = corral
      .map(({ fraction }, n) => (wanted[n].sign() > 0 ? null : fraction.over(fraction.minus(wanted[n]))))
      .filter((limit) => limit !== null);
    if (!limits.length) return corral.map(({ row }, n) => ({ row, fraction: wanted[n] }));
    const step = leastFraction(limits);
    corral = corral
      .map(({ row, fraction }, n) => ({ row, fraction: fraction.plus(step.times(wanted[n].minus(fraction))) }))
      .filter(({ fraction }) => fraction.sign() > 0);
  }
}

// The fractions, of any sign and of sum 1, of the point that is nearest to the origin in the plane through some rows:
// its products with all of them are equal, so G·f is proportional to (1, ..., 1), and f is scaled to a sum of 1. (G plus
// 1 everywhere has the same solution, and is positive definite, as no row lies in the plane of the others.)
function nearestInPlane(chosen, product) {
  const table = chosen.map((i) => [...chosen.map((j) => product(i, j) + 1n), 1n]);
  const solution = solveWhole(table);
  const sum = solution.reduce((all, value) => all + value, 0n);
  return solution.map((value) => new Rational(value, sum));
}

// A multiple of the solution of linear equations in whole numbers, by Bareiss: elimination whose divisions leave no rest.
// The matrix is positive definite, so no number on the diagonal becomes 0.
function solveWhole(table) {
  const size = table.length;
  let before = 1n;
  for (let column = 0; column < size; column++) {
    for (let n = 0; n < size; n++) {
      if (n === column) continue;
      const factor = table[n][column];
      table[n] = table[n].map((value, m) => (value * table[column][column] - factor * table[column][m]) / before);
    }
    before = table[column][column];
  }
  return table.map((row) => row[size]);  // the diagonal is the same number in every row
}

// Fractions as whole parts of one total.
function overOneDenominator(corral) {
  const total = corral.reduce((all, { fraction: { denominator } }) =>
    (all / greatestDivisor(all, denominator)) * denominator, 1n);
  return { parts: corral.map(({ fraction }) => fraction.numerator * (total / fraction.denominator)), total };
}

// --- the mistake bound ------------------------------------------------------------------------------------------------

// The mistake bound of a run from zero weights by these conventions (biasStep, lr, margin):
// {radius, gamma, bound, radiusSquared: Rational, gammaSquared: Rational}: bound = (R² + 2·margin/η)/γ², R and γ where the
// update happens (the bias counted, as tp.theory.mistake_bound). gamma is 0 and bound Infinity if nothing separates;
// without points gamma is Infinity and bound 0. Call it once per data set and conventions, not per step.
function boundOf(data, conventions) {
  const { biasStep, lr, margin } = { ...DEFAULT_CONVENTIONS, ...conventions };
  const zero = new Rational(0n);
  if (!data.points.length) return { radius: 0, gamma: Infinity, bound: 0, radiusSquared: zero, gammaSquared: null };
  const squares = data.points.map((x) => x.reduce((sum, value) => sum.plus(Rational.of(value).times(value)), zero));
  const longest = squares.reduce((most, value) => (value.compare(most) > 0 ? value : most));
  const beta = { unit: Rational.of(1), none: zero, radius: longest }[biasStep];
  const radiusSquared = longest.plus(beta).times(data.classes === 2 ? 1 : 2);  // with K > 2, rows have two blocks
  const gammaSquared = nearestToOrigin(separationRows(data, beta)).squared;
  const above = radiusSquared.plus(Rational.of(margin).times(2).over(lr));
  return {
    radius: Math.sqrt(radiusSquared.toNumber()), gamma: Math.sqrt(gammaSquared.toNumber()),
    bound: gammaSquared.isZero() ? Infinity : above.over(gammaSquared).toNumber(), radiusSquared, gammaSquared,
  };
}
