"""How far an allocation scales: sweeps on 1, 2, 4 ... of its processes, beside what `dsgmcmc plan` says of them.

`layouts` says on which processes is measured, `measure` measures one of them, `study` all of them within a time,
`page` shows what was found.
"""
