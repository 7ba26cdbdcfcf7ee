## Dead rings in Nim with its cycle collector ORC, for bench/collector.c: one JSON object on standard output with
## the nanoseconds per object that collecting a million of them takes. The argument is the size of the rings.
##
## Compiled with --mm:orc -d:release. ORC collects by itself when it has enough candidates; that is switched
## off while rings are made, so that GC_fullCollect does all of the work, as closing the manager does in ndarc.
import std/[algorithm, monotimes, os, strformat, strutils, times]

const
  million = 1_000_000
  warming = 2
  repeats = 3

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
  ## The median, behind a pass that counts the dead and some that warm up. Stops the program when a ring was left.
  discard collectNs(size, Counted(alive: true))
  if deaths != million:
    quit(&"""{{"skipped": "{deaths} of {million} objects died in rings of {size}"}}""", 0)
  for _ in 1 .. warming:
    discard collectNs(size, Nothing())
  let occupied = getOccupiedMem()
  var times: array[repeats, float]
  for time in times.mitems:
    time = collectNs(size, Nothing())
  times.sort()
  result = times[repeats div 2]
  if getOccupiedMem() > occupied + 4096:
    quit(&"""{{"skipped": "rings of {size} were not freed"}}""", 0)

GC_disableOrc()
let ns = ringsNs(parseInt(paramStr(1)))
echo &"""{{"library": "Nim {NimVersion} ORC", "ns_per_object": {ns:.2f}}}"""
