// Whether a line separates the classes, decided in exact fractions, with the proof either way.
//
// prove(data) returns {kind: "empty", separable: true} for fewer than two classes, or
//   {kind: "separable", separable: true, weight, bias,    Rationals, one row with K = 2, else K; the least slack is 1
//    gammaSquared, gamma,                  K = 2: of the widest strip; K > 2: 1/‖w‖² of these weights
//    supports: [index, ...],               the samples with the least slack
//    nearest: [point, point] | null}       K = 2: the nearest points of the hulls of class 0 and 1
// or {kind: "weakly separable" | "not separable", separable: false,
//    point | null,                         K = 2: a point in both hulls
//    weights: [{index, rival, fraction}],  K = 2: fractions of either class sum to 1 and make the point, of at most four
//                                          samples; K > 2: they sum to 1, and Σ fraction·(φ(x, y) − φ(x, rival)) = 0
//    weight, bias | null}                  weakly separable (told with K = 2 only): a line with no point on its wrong side
//
// For every K: a sample asks for w·z > 0 for all rows z = φ(x, y) − φ(x, k) of other classes k; with K = 2, z is y·(x, 1).
// The point of the rows' hull nearest to the origin decides (Gordan): 0 is a mean of rows that no w can be positive on;
// any other point is such a w.
function prove(data) {
  if (new Set(data.labels).size < 2) return {kind: "empty", separable: true};
  const rows = separationRows(data, Rational.of(1));
  const found = nearestToOrigin(rows);
  if (found.squared.numerator === 0n) return overlapProof(data, rows, found.fractions);
  return data.classes === 2 ? stripProof(data) : weightsProof(data, rows, found);
}

const ZERO = new Rational(0n);

function sumOf(fractions) {
  return fractions.reduce((sum, value) => sum.plus(value), ZERO);
}

// A mean of rows that is 0. With K = 2, its halves of either class are one point in both hulls, of at most four samples.
function overlapProof(data, rows, fractions) {
  const two = data.classes === 2;
  const weights = fractions.map(({row, fraction}) => ({...rows.about[row], fraction: two ? fraction.times(2) : fraction}));
  const proof = {kind: "not separable", separable: false, point: null, weights, weight: null, bias: null};
  if (!two) return proof;
  weights.sort((one, other) => one.index - other.index);
  const own = weights.filter(({index}) => data.labels[index] === 1);
  proof.point = [0, 1].map((j) => sumOf(own.map(({index, fraction}) => fraction.times(data.points[index][j]))));
  return {...proof, ...weakLine(data)};
}

// The nearest point as weights per class; divided by the squared distance, the least w·z is 1.
function weightsProof(data, rows, {fractions, squared}) {
  const weight = Array.from({length: data.classes}, () => [ZERO, ZERO]);
  const bias = Array(data.classes).fill(ZERO);
  for (const {row, fraction} of fractions) {
    const {index, rival} = rows.about[row];
    for (const [k, share] of [[data.labels[index], fraction.over(squared)], [rival, fraction.over(squared).times(-1)]]) {
      weight[k] = weight[k].map((value, j) => value.plus(share.times(data.points[index][j])));
      bias[k] = bias[k].plus(share);
    }
  }
  const length = sumOf(weight.flat().map((value) => value.times(value)));
  return separableProofOf(data, weight, bias, new Rational(1n).over(length), null);
}

function separableProofOf(data, weight, bias, gammaSquared, nearest) {
  const supports = supportsOf(data, weight, bias);
  const gamma = Math.sqrt(gammaSquared.toNumber());
  return {kind: "separable", separable: true, weight, bias, gammaSquared, gamma, supports, nearest};
}

// The samples whose y·s, or least s_y − s_r, is 1. Doubles rule out those that are clearly farther away.
function supportsOf(data, weight, bias) {
  const rounded = {weight: weight.map((row) => row.map((value) => value.toNumber())), bias: bias.map((value) => value.toNumber())};
  const tolerance = 1 + 2 ** 20 * roundingOf(rounded, reachOf(data.points)); // the weights were rounded, too
  return everyNumber(data.points.length).filter((i) => (
    slackAt(rounded, data.points[i], data.labels[i]) <= tolerance
    && exactSlack(weight, bias, data.points[i], data.labels[i]).compare(1) === 0
  ));
}

// y·s, or the least s_y − s_k of all other classes k, in fractions.
function exactSlack(weight, bias, x, label) {
  const scores = weight.map((row, k) => row[0].times(x[0]).plus(row[1].times(x[1])).plus(bias[k]));
  if (scores.length === 1) return scores[0].times(signOfClass(label));
  return leastFraction(scores.filter((_, k) => k !== label).map((score) => scores[label].minus(score)));
}

// The points times a power of two that makes all of them whole, {whole, unit}: much faster than fractions.
function wholePoints(points) {
  const exact = points.map((x) => x.map(Rational.of));
  const unit = exact.flat().reduce((most, value) => (value.denominator > most ? value.denominator : most), 1n);
  return {whole: exact.map((x) => x.map((value) => value.numerator * (unit / value.denominator))), unit};
}

const difference = (p, q) => [p[0] - q[0], p[1] - q[1]];
const dot = (p, q) => p[0] * q[0] + p[1] * q[1];

// The corners of the convex hull of some whole points, counterclockwise, as their indices; one for a single point, two for
// a segment: along the bottom and back along the top, dropping corners that do not turn left (Andrew).
function hullOf(whole, chosen) {
  const byPlace = (i, j) => signOfWhole(whole[i][0] - whole[j][0]) || signOfWhole(whole[i][1] - whole[j][1]);
  const turn = (a, b, i) => {
    const [along, to] = [difference(whole[b], whole[a]), difference(whole[i], whole[a])];
    return along[0] * to[1] - along[1] * to[0];
  };
  const sorted = [...chosen].sort(byPlace).filter((i, n, all) => n === 0 || byPlace(all[n - 1], i) !== 0);
  const chain = (order) => {
    const corners = [];
    for (const i of order) {
      while (corners.length > 1 && turn(...corners.slice(-2), i) <= 0n) corners.pop();
      corners.push(i);
    }
    return corners.slice(0, -1); // the last corner is the first of the other chain
  };
  return sorted.length < 2 ? sorted : [...chain(sorted), ...chain([...sorted].reverse())];
}

// The hull of every class.
function hullsOf(data, whole) {
  return everyNumber(data.classes).map((k) => hullOf(whole, everyNumber(whole.length).filter((i) => data.labels[i] === k)));
}

// A line with every point on its side or on itself, and not all on itself; null if there is none. Such a line can be
// turned until a side of a hull lies on it; if all points are on one line, it stands at right angles to a side.
function weakLine(data) {
  const {whole, unit} = wholePoints(data.points);
  const hulls = hullsOf(data, whole);
  const sides = hulls.flatMap((hull) => hull.map((corner, n) => [corner, hull[(n + 1) % hull.length]]));
  for (const [a, b] of sides.filter(([one, other]) => one !== other)) {
    const along = difference(whole[b], whole[a]);
    for (const [normal, through] of [[[-along[1], along[0]], a], [along, a], [along, b]]) {
      const sideOf = (i) => signOfWhole(dot(normal, difference(whole[i], whole[through])));
      const found = new Set(hulls.flat().map((i) => sideOf(i) * signOfClass(data.labels[i])).filter((value) => value !== 0));
      if (found.size !== 1) continue;
      const side = BigInt([...found][0]);
      const bias = new Rational(-side * dot(normal, whole[through]), unit);
      return {kind: "weakly separable", weight: [normal.map((value) => new Rational(side * value))], bias: [bias]};
    }
  }
  return null;
}

// The strip between the hulls is widest at right angles to the way between their nearest points p and q, the line half
// way. With w = 2·(q − p)/‖q − p‖² the scores at p and q are −1 and +1, and the half-width is 1/‖w‖ = ‖q − p‖/2.
function stripProof(data) {
  const [start, end] = nearestPoints(data);
  const way = end.map((value, j) => value.minus(start[j]));
  const squared = sumOf(way.map((value) => value.times(value)));
  const weight = way.map((value) => value.times(2).over(squared));
  const bias = sumOf(weight.map((value, j) => value.times(start[j].plus(end[j])).over(-2)));
  return separableProofOf(data, [weight], [bias], squared.over(4), [start, end]);
}

// The nearest points of the hulls of both classes: the point nearest to the origin among the means of corners' differences.
function nearestPoints(data) {
  const {whole, unit} = wholePoints(data.points);
  const hulls = hullsOf(data, whole);
  const about = hulls[0].flatMap((p) => hulls[1].map((q) => [p, q]));
  const way = about.map(([p, q]) => difference(whole[q], whole[p]));
  const {fractions} = nearestToOrigin({about, product: (i, j) => dot(way[i], way[j]), unit});
  return [0, 1].map((side) => [0, 1].map((j) => sumOf(
    fractions.map(({row, fraction}) => fraction.times(new Rational(whole[about[row][side]][j], unit))),
  )));
}

// The rows as their inner products, whole numbers times unit²: {about: [{index, rival}, ...], product(i, j), unit}. A
// constant feature √β makes the bias a weight. Only corners of the classes' hulls have rows: other rows are means of them.
function separationRows(data, beta) {
  const {whole, unit} = wholePoints(data.points);
  const constant = beta.times(unit * unit).numerator; // whole, as β is 0, 1 or a sum of squares of coordinates
  const corners = hullsOf(data, whole).flat().sort((i, j) => i - j);
  const others = (label) => everyNumber(data.classes).filter((k) => k !== label);
  const about = corners.flatMap((index) => others(data.labels[index]).map((rival) => ({index, rival})));
  const own = (row) => data.labels[about[row].index];
  const blocks = (i, j) => {
    const [k, m, r, s] = [own(i), own(j), about[i].rival, about[j].rival];
    if (data.classes === 2) return k === m ? 1n : -1n;
    return BigInt((k === m) - (k === s) - (r === m) + (r === s));
  };
  const product = (i, j) => {
    const factor = blocks(i, j);
    return factor === 0n ? 0n : factor * (dot(whole[about[i].index], whole[about[j].index]) + constant);
  };
  return {about, product, unit};
}

// Wolfe's way, in exact numbers: the point that some rows (the corral) make is a mean with positive fractions. If no row
// lies nearer along its direction, it is the one; else the nearest such row joins, and the corral shrinks until its nearest
// point is within it. Returns {fractions: [{row, fraction}, ...] of sum 1, squared: the squared distance}.
function nearestToOrigin({about, product, unit}) {
  const every = everyNumber(about.length);
  const first = every.reduce((best, row) => (product(row, row) < product(best, best) ? row : best), 0);
  let corral = [{row: first, fraction: new Rational(1n)}];
  for (;;) {
    const {parts, total} = overOneDenominator(corral);
    // the point's products with all rows, times total: whole numbers
    const along = every.map((row) => corral.reduce((sum, each, n) => sum + parts[n] * product(row, each.row), 0n));
    const squared = corral.reduce((sum, each, n) => sum + parts[n] * along[each.row], 0n); // times total²
    const lowest = every.reduce((best, row) => (along[row] < along[best] ? row : best), 0);
    if (along[lowest] * total >= squared) {
      return {fractions: corral, squared: new Rational(squared, total * total * unit * unit)};
    }
    corral = shrunk([...corral, {row: lowest, fraction: ZERO}], product);
  }
}

// From a mean of rows towards the nearest point of the plane through them all, as far as fractions stay 0 or more; rows
// whose fraction became 0 leave, until the nearest point has positive fractions.
function shrunk(corral, product) {
  for (;;) {
    const wanted = nearestInPlane(corral.map(({row}) => row), product);
    const limits = corral.flatMap(({fraction}, n) => (
      wanted[n].compare(0) > 0 ? [] : [fraction.over(fraction.minus(wanted[n]))]
    ));
    if (!limits.length) return corral.map(({row}, n) => ({row, fraction: wanted[n]}));
    const step = leastFraction(limits);
    corral = corral
      .map(({row, fraction}, n) => ({row, fraction: fraction.plus(step.times(wanted[n].minus(fraction)))}))
      .filter(({fraction}) => fraction.compare(0) > 0);
  }
}

// The fractions, of any sign and of sum 1, of the point that is nearest to the origin in the plane through some rows:
// its products with all of them are equal, so (G + 1)·f is proportional to (1, ..., 1), where G + 1 is positive definite.
// Solved by Bareiss' elimination in whole numbers, whose divisions leave no rest.
function nearestInPlane(chosen, product) {
  const table = chosen.map((i) => [...chosen.map((j) => product(i, j) + 1n), 1n]);
  let before = 1n;
  for (let column = 0; column < table.length; column++) {
    for (let n = 0; n < table.length; n++) {
      if (n === column) continue;
      const factor = table[n][column];
      table[n] = table[n].map((value, m) => (value * table[column][column] - factor * table[column][m]) / before);
    }
    before = table[column][column];
  }
  const solution = table.map((row) => row.at(-1)); // the diagonal is the same number in every row
  const sum = solution.reduce((all, value) => all + value, 0n);
  return solution.map((value) => new Rational(value, sum));
}

// Fractions as whole parts of one total.
function overOneDenominator(corral) {
  const total = corral.reduce((all, {fraction: {denominator}}) =>
    (all / greatestDivisor(all, denominator)) * denominator, 1n);
  return {parts: corral.map(({fraction}) => fraction.numerator * (total / fraction.denominator)), total};
}

// The mistake bound (R² + 2·margin/η)/γ² of a run from zero weights, the bias counted, as tp.theory.mistake_bound:
// {radius, gamma, bound, gammaSquared}; gamma is 0 and bound Infinity if nothing separates.
function boundOf(data, conventions) {
  const {biasStep, lr, margin} = {...defaultConventions(), ...conventions};
  if (!data.points.length) return {radius: 0, gamma: Infinity, bound: 0, gammaSquared: null};
  const squares = data.points.map((x) => sumOf(x.map((value) => Rational.of(value).times(value))));
  const longest = squares.reduce((most, value) => (value.compare(most) > 0 ? value : most));
  const beta = {unit: Rational.of(1), none: ZERO, radius: longest}[biasStep];
  const radiusSquared = longest.plus(beta).times(data.classes === 2 ? 1 : 2); // with K > 2, rows have two blocks
  const gammaSquared = nearestToOrigin(separationRows(data, beta)).squared;
  const above = radiusSquared.plus(Rational.of(margin).times(2).over(lr));
  return {
    radius: Math.sqrt(radiusSquared.toNumber()), gamma: Math.sqrt(gammaSquared.toNumber()),
    bound: gammaSquared.numerator === 0n ? Infinity : above.over(gammaSquared).toNumber(), gammaSquared,
  };
}
