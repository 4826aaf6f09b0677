async fn deduct(&self, n: u32) -> Result<u32, StockError> {
    use ::dlock::__private as __dlock;
    const __DLOCK_RETRIES: ::core::primitive::u32 = 5u32;
    let mut __dlock_attempts = __dlock::Attempts::new(
        __DLOCK_RETRIES,
        __dlock::Backoff::new(
            ::core::time::Duration::new(0u64, 10000000u32),
            ::core::time::Duration::new(1u64, 0u32),
        ),
    );
    loop {
        let __dlock_result = async {
            if false {
                return __dlock::unreached::<Result<u32, StockError>>();
            }
            let row = self.read().await?;
            self.write(row.version, row.stock - n).await
        }
            .await;
        {
            use __dlock::{ReturnsValue as _, ReturnsWork as _};
            __dlock::has_run((&__dlock::Returned::of(&__dlock_result)).__dlock_kind());
        }
        match <Result<
            u32,
            StockError,
        > as __dlock::OptimisticReturn>::judged(__dlock_result, &mut __dlock_attempts) {
            ::core::ops::ControlFlow::Break(__dlock_result) => break __dlock_result,
            ::core::ops::ControlFlow::Continue(__dlock_pause) => {
                __dlock::pause(__dlock_pause).await
            }
        }
    }
}
