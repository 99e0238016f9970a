"""Measurements: every figure in docs/results is written by a command of this package.

| module | what it measures or contains |
|---|---|
| `measure.accuracy` | right answers of the methods on unseen questions of every family |
| `measure.decode` | methods over prompts, in this process: speed, acceptance, forwards, accuracy |
| `measure.ablate` | ablations: one setting changed at a time |
| `measure.approx` | one pass over paired rows against sequential denoising |
| `measure.speed` | the code against plain transformers and its arithmetic floor, and as batch and context grow |
| `measure.transformers_loop` | vanilla written with transformers, with which our own vanilla is compared |
| `measure.loading` | how long loading takes, and how much host memory it needs beside the weights |
| `measure.floor` | decode time over the time of its matrix products alone |
| `measure.rounds` | timed rounds, and the sizes of the runs of `measure.speed` |
| `measure.engines` | the same rounds with engines on Ray and in one process |
| `measure.sweep` | numbers of concurrent clients over HTTP and gRPC, and the same requests in this process |
| `measure.server` | the server that a sweep starts, and the CPU seconds of its parts |
| `measure.capacity` | the capacity model of `simsd plan` against this machine |
| `measure.pair` | the pair under measurement, with weights or without |
| `measure.methods` | the methods by name, and how long answers are |
| `measure.prompts` | the prompts |
| `measure.ratios` | medians, quartiles and ratios |
| `report.results` | writes a measurement's files |
| `report.facts` | the machine, versions and commit of a measurement |
| `report.markdown` | documents and their tables |
| `report.speed_tables` | the document of `simsd bench speed` |
| `report.paper` | the paper's tables with ours beside them |
| `report.published` | the paper's own figures |
| `report.trends` | whether our figures show the paper's trends |
| `report.plots` | plots |
| `cluster.load` | clients that stay, leave or misbehave, and how each request ended |
| `cluster.soak` | a server under load while its parts are killed one by one |
| `cluster.scaling` | pairs that come and go with the load, on several nodes |
| `cluster.components` | components that can be killed, actors, objects, nodes |
| `processes` | memory, files and CPU time of the processes of an application |
"""
