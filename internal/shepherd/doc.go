// Package shepherd watches over the programs of jobs: one process of its own for each attempt of a job, which survives the
// daemon that started it.
//
// A shepherd claims its attempt, so that it is run once at most; runs the program in a session of its own as the user whose
// job it is; writes what it prints to a log; passes on the wish to stop; ends what the program leaves behind; and leaves a
// record of how it ended. The daemon's side starts shepherds, finds them again after a restart, and cleans up after one that
// was killed.
//
// All of that is in the folder of the job:
//
//	task-N.json   what attempt N runs, written by the daemon
//	claim-N       whose attempt N is: a shepherd's, which holds a lock on it while it lives, or nobody's (revoked)
//	began-N.json  the process of the program, once it has begun
//	exit-N.json   how it ended
//	log/          what all attempts printed: segments of frames, named by their offset
//
// The package needs Linux 5.11: pidfds, subreapers, /proc.
package shepherd
