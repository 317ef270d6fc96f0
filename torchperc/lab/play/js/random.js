// The Mersenne Twister mt19937 as torch.Generator uses it, so that a seed means the same here as in Python.
//
//   generator = new TorchGenerator(seed)   torch.Generator().manual_seed(seed)
//   generator.next()                       the next 32 random bits, as a number from 0 to 2³² − 1
//   generator.below(n)                     int(torch.randint(n, (1,), generator=generator))
//   generator.permutation(n)               torch.randperm(n, generator=generator).tolist()
class TorchGenerator {}
