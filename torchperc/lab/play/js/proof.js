// Whether a line separates the classes, decided in exact fractions, with the proof either way.
//
// prove(data) returns one of
//   {kind: "empty", separable: true, ...nothing else}      no points, or points of one class only: nothing to separate
//   {kind: "separable", separable: true,
//    weight: [[Rational, Rational], ...], bias: [Rational, ...],     one row with K = 2, K rows with K > 2, as in stateAt
//    least: Rational            the least y·s (s_y − s_r with K > 2) of all samples; 1 with K = 2
//    gammaSquared: Rational     K = 2: the half-width of the widest strip, squared (γ* of max_margin(bias="free"));
//                               K > 2: least²/‖w‖² of these weights, as Hyperplane.squared_margin
//    gamma: number,
//    supports: [index, ...]}    K = 2: the samples on the strip's edges; K > 2: the samples with the least slack
//   {kind: "weakly separable" | "not separable", separable: false,
//    point: [Rational, Rational] | null,                   K = 2: a point in both hulls
//    weights: [{index, rival, fraction: Rational}, ...]}   K = 2: fractions of either class sum to 1 and make the point
//                                                          (at most four points). K > 2: Σ fraction·(φ(x, y) − φ(x, rival))
//                                                          = 0, fractions sum to 1, φ(x, k) = (x, 1) in block k.
//                                                          rival is a class 0 .. K−1. All fractions are positive.
//    With K > 2 the two kinds are not told apart: "not separable".
function prove(data) {}

// The mistake bound of a run from zero weights by these conventions (biasStep, lr, margin):
// {radius, gamma, bound, radiusSquared: Rational, gammaSquared: Rational}: bound = (R² + 2·margin/η)/γ², R and γ where the
// update happens (the bias counted, as tp.theory.mistake_bound). gamma is 0 and bound Infinity if nothing separates.
// Exact, and not cheap for many points: call it once per data set.
function boundOf(data, conventions) {}

// The corners of the convex hull, in order, as indices into points. (For drawing the hulls.)
function convexHull(points) {}
