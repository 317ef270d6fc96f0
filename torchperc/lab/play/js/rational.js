// Exact fractions on BigInt. Every double is a whole number times a power of two, so every input has an exact fraction,
// and what is proved with them is proved.
//
//   Rational.of(0.25)            1/4, exactly; also of a BigInt or a Rational
//   new Rational(1n, 3n)         1/3, always in lowest terms with a positive denominator
//   a.plus(b) minus times over   arithmetic; b may be a number, a BigInt or a Rational; a.compare(b) is −1, 0 or 1
class Rational {
  constructor(numerator, denominator = 1n) {
    if (denominator === 0n) throw new Error("a fraction with a denominator of 0 is no number");
    const common = greatestDivisor(numerator, denominator);
    const sign = denominator < 0n ? -1n : 1n;
    this.numerator = (sign * numerator) / common;
    this.denominator = (sign * denominator) / common;
  }

  static of(value) {
    if (value instanceof Rational) return value;
    if (typeof value === "bigint") return new Rational(value);
    if (!Number.isFinite(value)) throw new Error(`${value} is no finite number, so it has no fraction`);
    let halvings = 0n;
    while (!Number.isInteger(value)) { // doubling a double is exact, and ends: its last bit is at 2⁻¹⁰⁷⁴ at the lowest
      value *= 2;
      halvings += 1n;
    }
    return new Rational(BigInt(value), 1n << halvings);
  }

  plus(other) {
    const b = Rational.of(other);
    return new Rational(this.numerator * b.denominator + b.numerator * this.denominator, this.denominator * b.denominator);
  }

  minus(other) {
    return this.plus(Rational.of(other).times(-1));
  }

  times(other) {
    const b = Rational.of(other);
    return new Rational(this.numerator * b.numerator, this.denominator * b.denominator);
  }

  over(other) {
    const b = Rational.of(other);
    return new Rational(this.numerator * b.denominator, this.denominator * b.numerator);
  }

  compare(other) {
    const b = Rational.of(other); // denominators are positive, so multiplying by them keeps the order
    return signOfWhole(this.numerator * b.denominator - b.numerator * this.denominator);
  }

  toNumber() {
    // a quotient of at least 64 bits, whose last bit says whether anything is left: rounded once, by Number
    const digits = (value) => value.toString(16).replace("-", "").length; // of four bits
    const shift = 64 + 4 * (digits(this.denominator) - digits(this.numerator));
    const top = this.numerator << BigInt(Math.max(0, shift));
    const below = this.denominator << BigInt(Math.max(0, -shift));
    const quotient = top / below;
    const sticky = quotient * below === top ? 0n : this.numerator < 0n ? -1n : 1n;
    const half = Math.trunc(shift / 2); // 2 ** −shift in two factors, because it may be smaller than any double
    return Number(quotient * 2n + sticky) * 2 ** (-half - 1) * 2 ** (half - shift);
  }

  toString() {
    return this.denominator === 1n ? `${this.numerator}` : `${this.numerator}/${this.denominator}`;
  }
}

function leastFraction(fractions) {
  return fractions.reduce((least, fraction) => (fraction.compare(least) < 0 ? fraction : least));
}

// The greatest common divisor, never negative; 1 for 0 and 0, so that one can divide by it.
function greatestDivisor(a, b) {
  while (b) [a, b] = [b, a % b];
  return (a < 0n ? -a : a) || 1n;
}

function signOfWhole(value) {
  return value > 0n ? 1 : value < 0n ? -1 : 0;
}
