from pcodec import standalone as standalone

class ChunkConfig:
    def __init__(self, compression_level: int = ..., enable_8_bit: bool = ...) -> None: ...
