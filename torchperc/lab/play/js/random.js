// The Mersenne Twister mt19937 as torch.Generator uses it, so that a seed means the same here as in Python.
// next() gives 32 random bits as a number, below(n) what torch.randint gives, permutation(n) what torch.randperm gives.

const TWISTER_SIZE = 624;
const TWISTER_SHIFT = 397;

class TorchGenerator {
  constructor(seed) {
    this.words = new Uint32Array(TWISTER_SIZE);
    this.words[0] = seed % 2 ** 32; // torch keeps the lower 32 bits of a seed
    for (let i = 1; i < TWISTER_SIZE; i++) {
      const before = this.words[i - 1] ^ (this.words[i - 1] >>> 30);
      this.words[i] = Math.imul(1812433253, before) + i;
    }
    this.used = TWISTER_SIZE;
  }

  next() {
    if (this.used === TWISTER_SIZE) this.twist();
    let bits = this.words[this.used++];
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    bits ^= bits >>> 18;
    return bits >>> 0; // as a number that is not negative
  }

  // New words from the old ones: each from the top bit of one, the other bits of the next, and a word further on.
  twist() {
    for (let i = 0; i < TWISTER_SIZE; i++) {
      const mixed = (this.words[i] & 0x80000000) | (this.words[(i + 1) % TWISTER_SIZE] & 0x7fffffff);
      const further = this.words[(i + TWISTER_SHIFT) % TWISTER_SIZE];
      this.words[i] = further ^ (mixed >>> 1) ^ (mixed & 1 ? 0x9908b0df : 0);
    }
    this.used = 0;
  }

  below(n) {
    return this.next() % n;
  }

  // Fisher and Yates: every place in turn is swapped with one from itself to the end.
  permutation(n) {
    const order = everyNumber(n);
    for (let i = 0; i < n - 1; i++) {
      const j = i + this.below(n - i);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }
}

// 0 … count − 1
function everyNumber(count) {
  return Array.from({length: count}, (_, i) => i);
}
