"""The benchmark: judges a watermark by its public interface and the attacks alone."""
