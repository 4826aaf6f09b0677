// redsync beside dlock: so many tasks want one name, with redsync's defaults (32 tries, 50 to 250 ms apart).
//
// Waits for a line on its input or for its end, so that all begin together; then tells its holds, its failures, and each wait in µs.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Seen is what one task has seen.
type seen struct {
	holds, failures int
	waits           []time.Duration
}

func main() {
	urls := flag.String("urls", "", "the masters, with commas between them")
	name := flag.String("name", "", "the lock's name")
	tasks := flag.Int("tasks", 8, "how many want it")
	length := flag.Duration("for", 10*time.Second, "for how long")
	hold := flag.Duration("hold", time.Millisecond, "how long each hold lasts")
	pause := flag.Duration("pause", 10*time.Millisecond, "how long each task does without the lock")
	counter := flag.String("counter", "", "a name at the first master that is counted up in two steps, under the lock")
	flag.Parse()
	var pools []redsyncredis.Pool
	var first *redis.Client
	for _, url := range strings.Split(*urls, ",") {
		options, err := redis.ParseURL(url)
		fail(err)
		client := redis.NewClient(options)
		fail(client.Ping(context.Background()).Err())
		if first == nil {
			first = client
		}
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)
	fmt.Println("up")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); !errors.Is(err, io.EOF) {
		fail(err)
	}
	end := time.Now().Add(*length)
	all := make([]seen, *tasks)
	var together sync.WaitGroup
	for task := range all {
		together.Go(func() {
			mutex, own := locks.NewMutex(*name), &all[task]
			for time.Now().Before(end) {
				begun := time.Now()
				var taken *redsync.ErrTaken
				if err := mutex.Lock(); err != nil {
					if !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &taken) {
						fail(err)
					}
					own.failures++
				} else {
					own.holds++
					own.waits = append(own.waits, time.Since(begun))
					work(first, *counter, *hold)
					_, err := mutex.Unlock()
					fail(err)
				}
				time.Sleep(*pause)
			}
		})
	}
	together.Wait()
	var sum seen
	for _, own := range all {
		sum.holds += own.holds
		sum.failures += own.failures
		sum.waits = append(sum.waits, own.waits...)
	}
	fmt.Print("seen ", sum.holds, " ", sum.failures)
	for _, wait := range sum.waits {
		fmt.Print(" ", wait.Microseconds())
	}
	fmt.Println()
}

// Counts in two steps, which only the lock keeps together.
func work(client *redis.Client, counter string, hold time.Duration) {
	if counter == "" {
		time.Sleep(hold)
		return
	}
	before, err := client.Get(context.Background(), counter).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		fail(err)
	}
	time.Sleep(hold)
	fail(client.Set(context.Background(), counter, before+1, 0).Err())
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
