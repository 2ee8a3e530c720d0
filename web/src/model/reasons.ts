// Why jobs wait: what each code means, and what the user can do. One list, as every command shows it.

export interface Doc {
  means: string
  act: string
}

const docs: Record<string, Doc> = {
  Planning: { means: 'The next plan has not come to the job yet.', act: 'Nothing: plans are made each second.' },
  Priority: { means: 'A job that comes first waits for the same GPUs, and starting this one would delay it.', act: 'Raise --priority, or wait for the job that is named.' },
  Quota: { means: 'Its user has as many GPUs, or running jobs, as allowed while others wait.', act: 'Wait for one of your own jobs, or ask an administrator for another limit.' },
  Dependency: { means: 'A job that it comes after (--after) has not ended.', act: 'Wait for the job that is named.' },
  Gang: { means: 'Not all of its GPUs can be given to it at once.', act: 'Ask for fewer with --gpus, or wait.' },
  MemoryReserved: { means: 'The memory that the residents always hold and its own are more than the GPU has (C1).', act: 'Lower --memory to what the job needs, or wait for a resident to end.' },
  MemoryOverflow: { means: 'The residents and this job would too often want more memory at once than the GPU has (C2).', act: 'Lower --memory, let the job hand memory over at its iterations, or wait.' },
  FloorSelf: { means: 'Beside those residents the job itself would fall below its floor (C3).', act: 'Lower --floor, or wait for another neighbour.' },
  FloorResident: { means: 'A resident would fall below its floor (C3).', act: 'Wait: the floor of a job that runs is kept.' },
  MaxResidents: { means: 'The GPU has as many residents as are allowed (C4).', act: 'Wait for one to end.' },
  SameJob: { means: 'Another worker of the same job is on that GPU (C5).', act: 'Ask for fewer GPUs, or wait for another one.' },
  ClassConflict: { means: 'The classes may not share: a guaranteed job shares with one besteffort job at most.', act: 'Choose another --class, or wait.' },
  PairBanned: { means: 'The two were seen below a floor together and are kept apart for an hour.', act: 'Wait for the end of the ban, or for the other job to end.' },
  GPUUnhealthy: { means: 'The GPU had a fault.', act: 'See weft gpus and weft events for what it was.' },
  Drained: { means: 'The GPU was drained: it takes no job until it is taken back.', act: 'Wait, or ask an administrator: weft drain GPU --off.' },
  Foreign: { means: 'A program that is none of weft’s jobs uses the GPU.', act: 'See weft gpus for whose it is; end it, or run it with weft run.' },
  Native: { means: 'A Pod that did not opt in to sharing holds the GPU whole.', act: 'Wait for that Pod to end.' },
  NodeMismatch: { means: 'The job’s own node selector, affinity or tolerations exclude the node.', act: 'Change them, or wait for a GPU of another node.' },
  Budget: { means: 'As many jobs as allowed were moved or started lately.', act: 'Nothing: it is tried again shortly.' },
  Rule: { means: 'The sharing rule that is in force keeps the two apart.', act: 'Wait for another neighbour.' },
  TooLarge: { means: 'It never fits: it asks for more memory than a GPU has, or for more GPUs than there are.', act: 'Stop it, and submit it with less --memory or fewer --gpus.' },
  FloorUnreachable: { means: 'It never reaches its floor, even alone.', act: 'Stop it, and submit it with a lower --floor.' },
  ProfileUnknown: { means: 'No profile of that name is known.', act: 'Stop it, and submit it with --memory or a known --profile.' },
  Invalid: { means: 'What it asks for cannot be.', act: 'Stop it, and submit it again.' },
}

/** doc is what is known of a code; a new one of the daemon says so. */
export function doc(code: string): Doc {
  return (Object.hasOwn(docs, code) ? docs[code] : undefined) ?? { means: 'This page does not know the reason yet.', act: 'Run: weft explain ID' }
}

/** codes are those that are known, in the order in which stacks show them. */
export const codes: readonly string[] = Object.keys(docs)
