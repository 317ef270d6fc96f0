// Exact fractions on BigInt. Every double is a whole number times a power of two, so every input has an exact fraction,
// and sums, products and comparisons of them round nothing: what is proved with them is proved.
//
//   Rational.of(0.25)            1/4, exactly; also of a BigInt or a Rational
//   new Rational(1n, 3n)         1/3, always in lowest terms with a positive denominator
//   a.plus(b) minus times over   arithmetic; b may be a number, a BigInt or a Rational
//   a.negated()  a.absolute()    −a, |a|
//   a.compare(b)                 −1, 0 or 1;  a.sign() is a.compare(0), a.equals(b), a.isZero()
//   a.toNumber()                 the nearest double
//   a.toString()                 "1/3", "2"
class Rational {}
