"""Measured claims: every figure in docs/results comes out of a command here.

| module | what it measures, or is for |
|---|---|
| `measure.decode` | methods over prompts, in this process: speed, acceptance, forwards, accuracy |
| `measure.ablate` | one thing changed at a time |
| `measure.approx` | one pass over paired rows against sequential denoising |
| `measure.speed` | the code against plain transformers and its arithmetic, and as batch and context grow |
| `measure.transformers_loop` | vanilla written with transformers, which our own vanilla is compared with |
| `measure.loading` | how long loading takes, and how much memory of the host beside the weights |
| `measure.floor` | decode time over the time of its matrix products alone |
| `measure.rounds` | rounds under a stopwatch, and the sizes of what `measure.speed` runs |
| `measure.engines` | the same rounds with engines on Ray and in one process |
| `measure.sweep` | clients at a time over HTTP and gRPC, and the same requests in this process |
| `measure.server` | the server that a sweep starts, and the CPU seconds of its parts |
| `measure.capacity` | the capacity model of `simsd plan` against this machine |
| `measure.pair` | the pair under measurement, with weights or without |
| `measure.methods` | the methods by name, and how long answers are |
| `measure.prompts` | what is asked |
| `measure.ratios` | medians, quartiles and ratios |
| `report.results` | from a measurement to its files |
| `report.facts` | where and with what figures were taken |
| `report.markdown` | documents and their tables |
| `report.speed_tables` | the document of `simsd bench speed` |
| `report.paper` | the paper's tables with ours beside them |
| `report.published` | the paper's own figures |
| `report.trends` | whether ours go where the paper's go |
| `report.plots` | plots |
| `cluster.load` | clients of every kind, and how each request ended |
| `cluster.soak` | a server under load while its parts are killed one by one |
| `cluster.scaling` | pairs that come and go with the load, on several nodes |
| `cluster.components` | components that can be killed, actors, objects, nodes |
| `processes` | memory, files and CPU time of the processes of an application |
"""
