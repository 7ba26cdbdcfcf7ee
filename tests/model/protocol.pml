/* The protocol of docs/collector.md by itself: gate, two passes, parking, weak upgrades.
 *
 * Two objects, A = 0 and B = 1, point to each other. A mutator holds B and does at most STEPS things: follows an edge
 * (retain), gives a reference up (release), takes an edge (which moves a reference without touching a count). Another thread
 * upgrades a weak reference to A. A collector collects once beside them, and once when they have ended.
 *
 * A writer's flag goes through a store buffer (`late`): the store reaches memory at any later time, at the latest with the
 * thread's next read-modify-write, or when the collector's process-wide barrier makes it.
 *
 * Properties, as assertions: nobody uses, and the collector never looks at, an object that is freed; what is freed nobody
 * holds; no count falls below zero; in the end everything that nobody holds is freed. And no state without a way on, which
 * spin looks for by itself.
 *
 *   spin -a protocol.pml && cc -O2 -DSAFETY -o pan pan.c && ./pan -m100000
 *
 * -DSTEPS=n and -DNO_UPGRADER make it smaller: with both threads four steps are ten million states, and three hops need six.
 * With -DNO_VERSION, -DNO_BARRIER, -DWEAK_NOT_GATED, -DNO_PARKING or -DEDGES_BEFORE_GATE spin finds an error.
 */
#ifndef STEPS
#define STEPS 6 /* three hops */
#endif
#define NONE 2

byte count[2], version[2];
bool edge[2];             /* edge[o]: o points to the other one */
bool dying[2], freed[2], parked[2];
byte held[6];             /* held[2 * thread + o]: references in variables of a thread */
bool closed;
bool writing[3], late[3]; /* a writer's flag in memory; the store of it that is still buffered */
byte ended;

#define HELD(t, o) held[2 * (t) + (o)]

inline drain(me) {
    if
    :: late[me] -> writing[me] = true; late[me] = false
    :: else
    fi
}

/* Sets `inside`: whether the thread may write edges now. */
inline try_enter(me) {
    late[me] = true;
    if
    :: !closed -> inside = true
    :: else -> atomic { late[me] = false; writing[me] = false; inside = false }
    fi
}

inline leave(me) {
    atomic { late[me] = false; writing[me] = false }
}

inline enter(me) {
    do
    :: try_enter(me);
       if
       :: inside -> break
       :: else -> !closed
       fi
    od
}

inline retain(me, which) {
    atomic {
        assert(!freed[which] && count[which] > 0);
        drain(me);
        count[which]++;
        version[which]++;
        HELD(me, which)++
    }
}

/* One reference less; `dead` becomes the object when it was the last. */
inline decrement(me, which) {
    atomic {
        assert(!freed[which] && count[which] > 0);
        drain(me);
        count[which]--;
        if
        :: count[which] == 0 -> dead = which
        :: else -> dead = NONE
        fi
    }
}

/* Destroys `dead`, and what dies with it; parks it when the gate is closed. */
inline destroy_dead(me) {
    do
    :: dead == NONE -> break
    :: else ->
#ifdef NO_PARKING
       inside = true;
#else
       try_enter(me);
#endif
       if
       :: inside ->
          again = edge[dead];
          edge[dead] = false;
#ifndef NO_PARKING
          leave(me);
#endif
          atomic { assert(!freed[dead]); freed[dead] = true }
          if
          :: again -> decrement(me, 1 - dead)
          :: else -> dead = NONE
          fi
       :: else ->
          parked[dead] = true;
          if /* opened meanwhile? */
          :: closed -> dead = NONE
          :: else ->
             atomic {
                 if
                 :: parked[dead] -> parked[dead] = false
                 :: else -> dead = NONE
                 fi
             }
          fi
       fi
    od
}

inline release(me, which) {
    atomic { assert(HELD(me, which) > 0); HELD(me, which)-- }
    decrement(me, which);
    destroy_dead(me)
}

proctype mutator() {
    byte steps = 0, dead = NONE, o;
    bool inside, again;
    do
    :: steps < STEPS ->
       steps++;
       if
       :: o = 0
       :: o = 1
       fi;
       if
       :: HELD(0, o) > 0 && edge[o] && HELD(0, 1 - o) == 0 -> retain(0, 1 - o)
       :: HELD(0, o) > 0 && HELD(0, 1 - o) > 0 -> release(0, o)
       :: HELD(0, o) > 0 ->
          enter(0);
          assert(!freed[o]);
          if
          :: edge[o] -> atomic { edge[o] = false; HELD(0, 1 - o)++ }
          :: else
          fi;
          leave(0)
       :: else
       fi;
       atomic { o = 0; inside = false; again = false; dead = NONE } /* fewer states */
    :: break
    od;
    steps = 0;
    do
    :: HELD(0, 0) > 0 -> assert(!freed[0]); release(0, 0)
    :: HELD(0, 1) > 0 -> assert(!freed[1]); release(0, 1)
    :: HELD(0, 0) == 0 && HELD(0, 1) == 0 -> break
    od;
    ended++
}

proctype upgrader() {
    byte dead = NONE;
    bool inside, again;
#ifndef WEAK_NOT_GATED
    enter(1);
#endif
    atomic { /* the lock of the weak reference */
        drain(1);
        if
        :: !freed[0] && !dying[0] && count[0] > 0 -> count[0]++; version[0]++; HELD(1, 0)++
        :: else
        fi
    }
#ifndef WEAK_NOT_GATED
    leave(1);
#endif
    if
    :: HELD(1, 0) > 0 -> assert(!freed[0]); release(1, 0)
    :: else
    fi;
    atomic { inside = false; again = false; dead = NONE; ended++ }
}

inline mark_reached() {
    atomic {
        if
        :: live[0] && edge[0] -> live[1] = true
        :: else
        fi
    }
    atomic {
        if
        :: live[1] && edge[1] -> live[0] = true
        :: else
        fi
    }
}

inline read_edges() {
    atomic {
        internal[0] = 0;
        internal[1] = 0;
        if
        :: candidate[0] && edge[0] -> internal[1]++
        :: else
        fi
    }
    atomic {
        if
        :: candidate[1] && edge[1] -> internal[0]++
        :: else
        fi
    }
}

inline read_word(which) {
    atomic {
        if
        :: candidate[which] -> assert(!freed[which]); words[which] = count[which]; versions[which] = version[which]
        :: else
        fi
    }
}

inline read_again(which) {
    atomic {
        if
        :: candidate[which] && !live[which] ->
           assert(!freed[which]);
#ifdef NO_VERSION
           if
           :: words[which] != count[which] -> live[which] = true
           :: else
           fi
#else
           if
           :: words[which] != count[which] || versions[which] != version[which] -> live[which] = true
           :: else
           fi
#endif
        :: else
        fi
    }
}

inline take_candidates() {
    atomic {
        candidate[0] = !freed[0] && !dying[0] && count[0] > 0;
        candidate[1] = !freed[1] && !dying[1] && count[1] > 0
    }
}

inline close_gate() {
    closed = true;
#ifndef NO_BARRIER
    atomic { drain(0); drain(1) }
#endif
    !writing[0];
    !writing[1]
}

inline look_at(which) {
    live[which] = !candidate[which] || internal[which] != words[which] || words[which] == 0
}

inline collect() {
#ifdef EDGES_BEFORE_GATE
    take_candidates();
    read_edges();
    close_gate();
    read_word(0);
    read_word(1);
#else
    close_gate();
    take_candidates();
    read_word(0);
    read_word(1);
    read_edges();
#endif
    atomic { look_at(0); look_at(1) }
    mark_reached();
    read_again(0);
    read_again(1);
    mark_reached();
    atomic { dying[0] = dying[0] || !live[0]; dying[1] = dying[1] || !live[1] }
    closed = false;
    /* Cut, then free. */
    for (o : 0 .. 1) {
        if
        :: candidate[o] && !live[o] && edge[o] ->
           edge[o] = false;
           if
           :: !live[1 - o] -> atomic { assert(count[1 - o] > 0); count[1 - o]-- }
           :: else -> decrement(2, 1 - o); destroy_dead(2)
           fi
        :: else
        fi
    }
    for (o : 0 .. 1) {
        if
        :: candidate[o] && !live[o] ->
           atomic {
               assert(!freed[o] && count[o] == 0);
               assert(HELD(0, o) == 0 && HELD(1, o) == 0);
               freed[o] = true
           }
        :: else
        fi
    }
    /* What was parked. */
    for (o : 0 .. 1) {
        atomic {
            if
            :: parked[o] -> parked[o] = false; dead = o
            :: else -> dead = NONE
            fi
        }
        destroy_dead(2)
    }
}

proctype collector() {
    byte words[2], versions[2], internal[2];
    bool candidate[2], live[2];
    byte o, dead = NONE;
    bool inside, again;
    collect();
    atomic {
        for (o : 0 .. 1) {
            words[o] = 0;
            versions[o] = 0;
            internal[o] = 0;
            candidate[o] = false;
            live[o] = false
        }
        inside = false;
        again = false
    }
    ended == 2;
    atomic { version[0] = 0; version[1] = 0 }
    collect();
    assert(freed[0] && freed[1]);
    assert(!parked[0] && !parked[1])
}

/* The processor: a buffered store reaches memory. */
proctype processor() {
end:
    do
    :: atomic { late[0] -> drain(0) }
    :: atomic { late[1] -> drain(1) }
    :: atomic { late[2] -> drain(2) }
    od
}

init {
    atomic {
        count[0] = 1;
        count[1] = 2;
        version[0] = 1;
        version[1] = 2;
        edge[0] = true;
        edge[1] = true;
        HELD(0, 1) = 1;
        run mutator();
#ifdef NO_UPGRADER
        ended = 1;
#else
        run upgrader();
#endif
        run collector();
        run processor()
    }
}
