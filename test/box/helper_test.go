package box

// asHelper lets this program be another that the tests start.
func asHelper() (ran bool, code int) { return false, 0 }
