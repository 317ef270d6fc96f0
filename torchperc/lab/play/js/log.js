// Functions of the mistake log: every set of weights of a run, and what can be said of the run, follow from its log.
//
// JSON that tp.MistakeLog reads (logToJson returns this object; JSON.stringify it for a file):
//   {"format": "torchperc mistake log", "version": 1,
//    "points": [[x1, x2], ...],
//    "labels": [-1, 1, ...]         −1/+1 for two classes, class indices 0 .. K−1 for K > 2
//    "classes": null | K            null for two classes by one score, as MistakeLog.space.classes
//    "bias_scale": β                MistakeLog.space.bias_scale: 1, max ‖x‖² or 0
//    "scale": η or 1                MistakeLog.space.scale: η if the run started from zero weights
//    "start": {"weight": [[w1, w2]], "bias": [b]}     one row, or K rows; unscaled, float64
//    "index": [...], "step": [...], "coef": [...], "wrong": [...]   as the columns of MistakeLog (coef is scaled: ±η)
//    "steps": T, "epoch_ends": [...],
//    "verdict": "SEPARATED" | "CYCLING" | "BUDGET", "cycle": null | [first, again],
//    "conventions": {"tie", "bias_step", "order", "seed", "lr", "margin", "max_epochs"}}   as arguments of RuleTrainer
// Every sample has cost 1. Numbers are float64.

// The weights after the first t mistakes: {weight: rows, bias: [..]}; t = 0 is the start, t = log.index.length the end.
function stateAt(log, t) {}

// The mean of the weights after each presented sample: {weight, bias}.
function averaged(log) {}

// The vote of all states, each as often as the number of samples it survived: a function x → class 0 .. K−1.
function voted(log) {}

// How many samples each state survived, from the start to the last: t + 1 numbers (the votes it has).
function survivals(log) {}

// How many mistakes had been made when the pocket weights came up; ratchet "runs" (Gallant) or "every".
function pocketIndex(log, ratchet = "runs") {}

// The number of training samples that each state decides wrongly, from the start to the last: t + 1 numbers.
function errorsOfStates(log) {}

// The number of mistakes in each epoch.
function mistakesByEpoch(log) {}

// The epoch (from 0) that mistake j (from 0) was made in.
function epochOf(log, j) {}

// What the weights after t mistakes say of the largest margin γ* with the bias counted: margin(w_t) ≤ γ* ≤ ‖w_t − w₀‖/(η·t),
// as tp.theory.bracket. {lower, upper}: −Infinity for zero weights, Infinity before the first mistake. (Also −Infinity if
// a bias that the bias step "none" never changes is not 0: such weights are no candidates for γ*.)
function bracketAt(log, t) {}

// The best bounds so far, which only ever close: {lower, upper}, the largest lower and the smallest upper of bracketAt
// up to t. upper ≤ 0 proves that nothing separates the data. All of them at once: bestBrackets(log)[t].
function bestBrackets(log) {}

// The least slack of all samples under a state: y·s, or s_y − s_r; Infinity without samples.
function leastSlack(data, state) {}

// ‖(w, b)‖ where the update happens: √(‖w‖² + b²/β).
function lengthOf(state, biasScale) {}

function logToJson(log) {}

// A log from that JSON, with scores made anew.
function logFromJson(object) {}
