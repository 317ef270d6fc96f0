"""Files of samples: text, Parquet, svmlight and NumPy, read in blocks."""
