## Dead rings in Nim with its cycle collector ORC, for bench/collector.c: one JSON object on standard output.
##
## Compiled with --mm:orc -d:release. ORC collects by itself when it has enough candidates; that is switched
## off while rings are made, so that GC_fullCollect does all of the work, as closing the manager does in ndarc.
import std/[algorithm, monotimes, strformat, times]

const
  million = 1_000_000
  repeats = 7

type
  Cell[Payload] = ref object
    next: Cell[Payload]
    payload: Payload
  Nothing = object
  Counted = object  ## counts the deaths of the cells that hold one
    alive: bool

var deaths = 0

proc `=destroy`(counted: var Counted) =
  if counted.alive: inc deaths

proc ring[Payload](size: int, payload: Payload) =
  ## One ring that nothing holds.
  let first = Cell[Payload](payload: payload)
  var last = first
  for _ in 1 ..< size:
    last = Cell[Payload](next: last, payload: payload)
  first.next = last

proc collectNs[Payload](size: int, payload: Payload): float =
  ## Nanoseconds per object of collecting a million dead objects in rings.
  for _ in 1 .. million div size:
    ring(size, payload)
  let start = getMonoTime()
  GC_fullCollect()
  float(inNanoseconds(getMonoTime() - start)) / million

proc ringsNs(size: int): float =
  ## The median. Stops the program when a ring was left.
  deaths = 0
  discard collectNs(size, Counted(alive: true))
  if deaths != million:
    quit(&"""{{"skipped": "{deaths} of {million} objects died in rings of {size}"}}""", 0)
  discard collectNs(size, Nothing())
  let occupied = getOccupiedMem()
  var times: seq[float]
  for _ in 1 .. repeats:
    times.add collectNs(size, Nothing())
  if getOccupiedMem() > occupied + 4096:
    quit(&"""{{"skipped": "rings of {size} were not freed"}}""", 0)
  times.sort()
  times[repeats div 2]

GC_disableOrc()
let
  ring2 = ringsNs(2)
  ring100 = ringsNs(100)
  ring1m = ringsNs(million)
echo &"""{{"library": "Nim {NimVersion} ORC", """ &
  &""""T11_rival_nim_ring2_ns_per_object": {ring2:.2f}, """ &
  &""""T11_rival_nim_ring100_ns_per_object": {ring100:.2f}, """ &
  &""""T11_rival_nim_ring1m_ns_per_object": {ring1m:.2f}}}"""
