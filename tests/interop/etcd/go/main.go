// Go's concurrency.Mutex beside dlock: so many sessions want one name.
//
// Waits for a line on its input or for its end, so that all begin together; then tells its holds and its failures.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	endpoint := flag.String("endpoint", "", "the member")
	prefix := flag.String("prefix", "", "the lock's prefix")
	counter := flag.String("counter", "", "a key that is counted up in two steps, under the lock; without it only the lock")
	sessions := flag.Int("sessions", 4, "how many want it; with -own each has a lock of its own")
	own := flag.Bool("own", false, "a lock for each session")
	length := flag.Duration("for", 10*time.Second, "for how long")
	hold := flag.Duration("hold", time.Millisecond, "how long each hold lasts")
	flag.Parse()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second})
	fail(err)
	var mutexes []*concurrency.Mutex
	for number := range *sessions {
		name := *prefix
		if *own {
			name += "/" + strconv.Itoa(number)
		}
		session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
		fail(err)
		mutexes = append(mutexes, concurrency.NewMutex(session, name))
	}
	fmt.Println("up")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); !errors.Is(err, io.EOF) {
		fail(err)
	}
	end := time.Now().Add(*length)
	holds := make([]int, *sessions)
	var together sync.WaitGroup
	for number, mutex := range mutexes {
		together.Go(func() {
			for time.Now().Before(end) {
				fail(mutex.Lock(context.Background()))
				work(client, *counter, *hold)
				fail(mutex.Unlock(context.Background()))
				holds[number]++
			}
		})
	}
	together.Wait()
	sum := 0
	for _, own := range holds {
		sum += own
	}
	fmt.Println("seen", sum, 0)
}

// Counts in two steps, which only the lock keeps together.
func work(client *clientv3.Client, counter string, hold time.Duration) {
	if counter == "" {
		time.Sleep(hold)
		return
	}
	found, err := client.Get(context.Background(), counter)
	fail(err)
	before := 0
	if len(found.Kvs) > 0 {
		before, err = strconv.Atoi(string(found.Kvs[0].Value))
		fail(err)
	}
	time.Sleep(hold)
	_, err = client.Put(context.Background(), counter, strconv.Itoa(before+1))
	fail(err)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
