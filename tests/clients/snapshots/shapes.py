"""Byte sizes of the tensors that well-known models ask for, computed from their published dimensions: parameters,
activations of a forward pass in their order, temporaries of attention, gradients and optimiser states.

A size here is what the program asks for; what the allocator makes of it is its own affair.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Step:
    """One tensor of a forward pass, in bytes. `kept`: backward needs it; else it dies with the next steps."""
    size: int
    kept: bool


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    parameters: list  # bytes of each tensor, in the order of creation
    activations: list  # Step


    element: int = 2


def transformer(name, layers, hidden, heads, kv_heads, ffn, vocabulary, batch, sequence, element=2, gated=False):
    head = hidden // heads
    parameters = [vocabulary * hidden]
    steps = [Step(batch * sequence * hidden, True)]
    tokens = batch * sequence
    for _ in range(layers):
        parameters += [hidden, hidden * hidden, kv_heads * head * hidden, kv_heads * head * hidden, hidden * hidden, hidden]
        parameters += [hidden * ffn, ffn * hidden] + ([hidden * ffn] if gated else [ffn, hidden])
        steps += [Step(tokens * hidden, True), Step(tokens * hidden, True), Step(tokens * kv_heads * head, True),
                  Step(tokens * kv_heads * head, True),
                  Step(batch * heads * sequence * sequence, False), Step(batch * heads * sequence * sequence, True),
                  Step(tokens * hidden, True), Step(tokens * hidden, False), Step(tokens * hidden, True),
                  Step(tokens * ffn, True), Step(tokens * ffn, True), Step(tokens * hidden, False)]
    steps += [Step(tokens * vocabulary, True), Step(tokens, False)]
    return Model(name, [n * element for n in parameters], [Step(s.size * element, s.kept) for s in steps], element)


def resnet50(batch, image=224, element=2):
    parameters = [64 * 3 * 7 * 7, 64, 64]
    side = image // 2
    steps = [Step(batch * 64 * side * side, True)] * 3
    side //= 2
    steps.append(Step(batch * 64 * side * side, True))
    came_in = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            if block == 0:
                side //= stride
                parameters += [came_in * width * 4, width * 4, width * 4]
                steps.append(Step(batch * width * 4 * side * side, False))
            parameters += [came_in * width, width, width, width * width * 9, width, width, width * width * 4,
                           width * 4, width * 4]
            for channels in (width, width, width * 4):
                steps += [Step(batch * channels * side * side, True), Step(batch * channels * side * side, True)]
            came_in = width * 4
    parameters += [2048 * 1000, 1000]
    steps.append(Step(batch * 1000, True))
    return Model("resnet50", [n * element for n in parameters], [Step(s.size * element, s.kept) for s in steps], element)


def all_models(random):
    """Each of them with a batch and a sequence length drawn from `random`: odd lengths as in real data."""
    batch, sequence = random.choice([1, 2, 3, 4, 8]), random.choice([77, 128, 197, 255, 384, 512])
    return [
        transformer("gpt2", 12, 768, 12, 12, 3072, 50257, batch, sequence),
        transformer("bert-base", 12, 768, 12, 12, 3072, 30522, batch, sequence, element=4),
        transformer("vit-b-16", 12, 768, 12, 12, 3072, 1000, batch, 197),
        transformer("llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256, 1, sequence, gated=True),
        resnet50(batch, random.choice([160, 224, 232])),
    ]
