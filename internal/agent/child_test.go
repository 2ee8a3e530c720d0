package agent

func child(string) {}
